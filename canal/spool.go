package canal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// A rowBuffer holds the row events of one transaction, undecoded: in memory, and once
// they pass a limit, all in a temporary file, which has no name any more when the first
// byte is written to it, so that it vanishes with the process.
//
// File and memory are the same sequence of chunks, so that a mark is one number:
//
//	4  number of the definition in defs
//	4  length of the rows
//	n  rows
type rowBuffer struct {
	limits bufferLimits
	defs   []*tableDef
	chunks []chunk // while in memory
	size   int64   // of the sequence of chunks
	held   int64   // of the memory budget, by all chunks

	file *os.File
	out  *bufio.Writer
}

type chunk struct {
	def  int
	rows []byte
	held int64 // of the memory budget
}

const chunkHeader = 8

type bufferLimits struct {
	dir    string
	memory int64 // above it rows go to a file
	disk   int64 // above it the transaction is refused
	event  int64 // above it an event that must be in memory at once is refused
	// take waits for a share of the memory budget and returns how much it got: all that
	// was asked for, or what can ever be had. give returns it.
	take     func(bytes int64) (int64, error)
	give     func(bytes int64)
	spilling func() // a file is begun
}

// add keeps rows of one event; it holds on to the slice.
func (b *rowBuffer) add(def *tableDef, rows []byte) error {
	if err := b.room(int64(len(rows))); err != nil {
		return err
	}
	c := chunk{def: b.number(def), rows: rows}
	if b.file != nil {
		if err := b.write(c); err != nil {
			return spoolError(err)
		}
		b.size += chunkHeader + int64(len(rows))
		return nil
	}
	if err := b.hold(&c, int64(cap(rows))); err != nil {
		return err
	}
	b.keep(c)
	return nil
}

// addFrom is add for rows that are still to be read, which need not all be in memory.
func (b *rowBuffer) addFrom(def *tableDef, s *stretch) error {
	if err := b.room(s.length); err != nil {
		return err
	}
	c := chunk{def: b.number(def)}
	if b.file != nil {
		err := b.writeHeader(c.def, s.length)
		if err == nil {
			_, err = io.CopyN(b.out, s, s.length)
		}
		switch {
		case s.err != nil:
			return fmt.Errorf("%w: %w", ErrCorrupt, s.err)
		case errors.Is(err, io.EOF):
			return errShort
		case err != nil:
			return spoolError(err)
		}
		b.size += chunkHeader + s.length
		return nil
	}
	if err := b.hold(&c, s.length); err != nil {
		return err
	}
	c.rows = make([]byte, s.length)
	if _, err := io.ReadFull(s, c.rows); err != nil {
		b.limits.give(c.held)
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	b.keep(c)
	return nil
}

// room begins the file when n more bytes are too many for memory.
func (b *rowBuffer) room(n int64) error {
	if b.size+chunkHeader+n > b.limits.disk {
		return &StopError{
			Reason: ErrSpool, What: fmt.Sprintf("a transaction's rows are above the limit of %d bytes", b.limits.disk),
			Mend: "raise the tailer's spool limit and start again",
		}
	}
	if b.file != nil || b.size+chunkHeader+n <= b.limits.memory {
		return nil
	}
	if err := b.spill(); err != nil {
		return spoolError(err)
	}
	return nil
}

// hold takes a share of the memory budget for a chunk of n bytes.
func (b *rowBuffer) hold(c *chunk, n int64) (err error) {
	c.held, err = b.limits.take(chunkHeader + n)
	return err
}

// keep keeps a chunk in memory.
func (b *rowBuffer) keep(c chunk) {
	b.held += c.held
	b.chunks = append(b.chunks, c)
	b.size += chunkHeader + int64(len(c.rows))
}

func (b *rowBuffer) number(def *tableDef) int {
	for i, d := range b.defs {
		if d == def {
			return i
		}
	}
	b.defs = append(b.defs, def)
	return len(b.defs) - 1
}

// spill moves everything to a file.
func (b *rowBuffer) spill() error {
	f, err := os.CreateTemp(b.limits.dir, "canal-spool-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(err, f.Close())
	}
	b.file, b.out = f, bufio.NewWriterSize(f, 1<<16)
	b.limits.spilling()
	for _, c := range b.chunks {
		if err := b.write(c); err != nil {
			return err
		}
	}
	b.chunks = nil
	b.limits.give(b.held)
	b.held = 0
	return nil
}

func (b *rowBuffer) write(c chunk) error {
	if err := b.writeHeader(c.def, int64(len(c.rows))); err != nil {
		return err
	}
	_, err := b.out.Write(c.rows)
	return err
}

func (b *rowBuffer) writeHeader(def int, rows int64) error {
	var h [chunkHeader]byte
	binary.LittleEndian.PutUint32(h[:], uint32(def))
	binary.LittleEndian.PutUint32(h[4:], uint32(rows))
	_, err := b.out.Write(h[:])
	return err
}

// truncate drops everything behind a mark, which is an earlier size.
func (b *rowBuffer) truncate(mark int64) error {
	if b.file != nil {
		if err := b.out.Flush(); err != nil {
			return spoolError(err)
		}
		if err := b.file.Truncate(mark); err != nil {
			return spoolError(err)
		}
		if _, err := b.file.Seek(mark, io.SeekStart); err != nil {
			return spoolError(err)
		}
	}
	for b.file == nil && b.size > mark {
		last := len(b.chunks) - 1
		b.size -= chunkHeader + int64(len(b.chunks[last].rows))
		b.limits.give(b.chunks[last].held)
		b.held -= b.chunks[last].held
		b.chunks = b.chunks[:last]
	}
	b.size = mark
	return nil
}

// seal ends the writing.
func (b *rowBuffer) seal() error {
	if b.file == nil {
		return nil
	}
	if err := b.out.Flush(); err != nil {
		return spoolError(err)
	}
	b.out = nil
	return nil
}

// release gives memory and file back; the buffer is empty afterwards.
func (b *rowBuffer) release() {
	b.limits.give(b.held)
	if b.file != nil {
		b.file.Close() // it has no name and nothing reads it any more
	}
	*b = rowBuffer{limits: b.limits}
}

// all decodes the rows in order.
func (b *rowBuffer) all() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var (
			row     Row
			scratch []byte
			def     *tableDef
		)
		for c, err := range b.sequence() {
			if err != nil {
				yield(Row{}, err)
				return
			}
			if d := b.defs[c.def]; d != def {
				def = d
				row = Row{Table: d.Table, Values: make([]Value, len(d.columns))}
			}
			for rest := c.rows; len(rest) > 0; {
				rest, scratch, err = def.decodeRow(rest, row.Values, scratch[:0])
				if err != nil {
					yield(Row{}, err)
					return
				}
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// sequence gives the chunks; the rows of one are valid until the next.
func (b *rowBuffer) sequence() iter.Seq2[chunk, error] {
	return func(yield func(chunk, error) bool) {
		for _, c := range b.chunks {
			if !yield(c, nil) {
				return
			}
		}
		if b.file == nil {
			return
		}
		in := bufio.NewReaderSize(io.NewSectionReader(b.file, 0, b.size), 1<<16)
		var (
			h    [chunkHeader]byte
			rows []byte
		)
		for {
			_, err := io.ReadFull(in, h[:])
			if err == io.EOF {
				return
			}
			n := int(binary.LittleEndian.Uint32(h[4:]))
			if err == nil {
				if cap(rows) < n {
					rows = make([]byte, n)
				}
				rows = rows[:n]
				_, err = io.ReadFull(in, rows)
			}
			if err != nil {
				yield(chunk{}, spoolError(err))
				return
			}
			if !yield(chunk{def: int(binary.LittleEndian.Uint32(h[:])), rows: rows}, nil) {
				return
			}
		}
	}
}

func spoolError(err error) error {
	return &StopError{Reason: ErrSpool, Cause: err, Mend: "make room in the spool directory, or name another, and start again"}
}
