package mirror

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// A spool is a file with the messages of a snapshot, so that the store need not keep old
// versions of its rows for as long as Kafka takes. It outlives the canald that wrote it: its
// name is in the checkpoint, and the next one on the same machine goes on with it. It has its
// name only once it is complete.
//
//	file   = frames of shard 0, frames of shard 1, ... ; then where each shard's end, 8 bytes each
//	frame  = pos (8) | born at (8) | mirrored (1) | id (16) | lengths of topic, key, headers and
//	         body (4 each) | sum of these (4) | topic | key | headers | body | sum of these (4)
//
// Integers are big-endian, sums CRC-32C. Of a message that is not mirrored the body is left out.
type spool struct {
	file *os.File
	path string
	ends []int64
	// count of messages, known to who wrote it
	count uint64
}

const (
	frameHead   = 8 + 8 + 1 + 16 + 4*4 + sumSize
	sumSize     = 4
	spoolBuffer = 64 << 10
)

// errSpool is a spool that does not hold what was written.
var errSpool = errors.New("spool of the backfill is damaged")

// spoolSum adds to a sum.
func spoolSum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
}

// newSpoolName is a name that nobody guesses: what is found under it was put there by a canald.
func newSpoolName() string { return strings.ToLower(rand.Text()) }

// spoolOwner is whose spools those of one mirror are: a store may be mirrored into several Kafka
// clusters, or twice into one under other names, by canalds that share a directory.
func spoolOwner(store, cluster, kafkaID string) string {
	sum := sha256.Sum256([]byte(cluster + "\x00" + kafkaID))
	return store + "." + hex.EncodeToString(sum[:4])
}

func spoolPath(dir, owner, name string) string {
	if dir == "" {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "notify-backfill."+owner+"."+name)
}

// removeSpools removes what backfills of an owner have left behind, but for one.
func removeSpools(dir, owner, keep string) {
	kept := spoolPath(dir, owner, keep)
	old, _ := filepath.Glob(spoolPath(dir, owner, "*")) // the pattern is good
	for _, path := range old {
		if path != kept {
			_ = os.Remove(path) // it is only in the way
		}
	}
}

// A spoolWriter writes a spool.
type spoolWriter struct {
	file  *os.File
	buf   *bufio.Writer
	path  string
	size  int64
	limit int64
	ends  []int64
	count uint64
	head  [frameHead]byte
	tail  [sumSize]byte
}

// createSpool begins a spool of at most limit bytes.
func createSpool(path string, limit int64) (*spoolWriter, error) {
	f, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, spoolError(err)
	}
	return &spoolWriter{file: f, buf: bufio.NewWriterSize(f, spoolBuffer), path: path, limit: limit}, nil
}

// spoolError is for a directory that cannot be used.
func spoolError(err error) error {
	return halt(ReasonConfig, "make room in spool_dir, or name another directory that canald may write", fmt.Errorf("%w: spool of the backfill: %w", ErrConfig, err))
}

func (w *spoolWriter) add(m message) error {
	body := m.body
	if !m.mirrored {
		body = nil
	}
	parts := [...][]byte{nil, m.topic, m.key, m.headers, body, nil}
	size, sum := int64(frameHead+sumSize), uint32(0)
	head := binary.BigEndian.AppendUint64(w.head[:0], uint64(m.pos))
	head = binary.BigEndian.AppendUint64(head, uint64(m.bornAt))
	head = append(head, byte(bool01(m.mirrored)))
	head = append(head, m.id[:]...)
	for _, p := range parts[1:5] {
		head = binary.BigEndian.AppendUint32(head, uint32(len(p)))
		size, sum = size+int64(len(p)), spoolSum(sum, p)
	}
	parts[0] = binary.BigEndian.AppendUint32(head, spoolSum(0, head))
	parts[5] = binary.BigEndian.AppendUint32(w.tail[:0], sum)
	if w.size += size; w.size > w.limit {
		return haltf(ReasonConfig, ErrConfig, "raise spool_bytes, and let spool_dir name a directory with that room",
			"the store holds more messages than the %d bytes of spool_bytes take", w.limit)
	}
	for _, p := range parts {
		if _, err := w.buf.Write(p); err != nil {
			return spoolError(err)
		}
	}
	w.count++
	return nil
}

// endShard says that the next message is of the next shard.
func (w *spoolWriter) endShard() { w.ends = append(w.ends, w.size) }

// finish makes the spool safe on disk and gives it its name.
func (w *spoolWriter) finish() (*spool, error) {
	for _, end := range w.ends {
		if err := binary.Write(w.buf, binary.BigEndian, end); err != nil {
			return nil, spoolError(err)
		}
	}
	if err := errors.Join(w.buf.Flush(), w.file.Sync()); err != nil {
		return nil, spoolError(err)
	}
	if err := os.Rename(w.file.Name(), w.path); err != nil {
		return nil, spoolError(err)
	}
	sp := &spool{file: w.file, path: w.path, ends: w.ends, count: w.count}
	w.file = nil
	return sp, nil
}

// discard removes a spool that was not finished.
func (w *spoolWriter) discard() {
	if w.file != nil {
		_ = w.file.Close() // nobody reads it
		_ = os.Remove(w.path + ".part")
	}
}

// openSpool opens a complete spool of that many shards.
func openSpool(path string, shards int) (_ *spool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	trailer := int64(8 * shards)
	s := &spool{file: f, path: path, ends: make([]int64, shards)}
	if info.Size() < trailer {
		return nil, io.ErrUnexpectedEOF
	}
	if err := binary.Read(io.NewSectionReader(f, info.Size()-trailer, trailer), binary.BigEndian, s.ends); err != nil {
		return nil, err
	}
	for i, end := range s.ends {
		if i > 0 && end < s.ends[i-1] || end < 0 || i == shards-1 && end != info.Size()-trailer {
			return nil, fmt.Errorf("%s: shard %d ends at %d of %d bytes", path, i, end, info.Size())
		}
	}
	return s, nil
}

// close ends the use of the file, once or more often; nil has none.
func (s *spool) close() {
	if s != nil {
		_ = s.file.Close() // it is only read
	}
}

// remove removes the file: nobody goes on with it. What is left is removed at the next start.
func (s *spool) remove() { _ = os.Remove(s.path) }

// messages yields the messages of all shards merged by their birth; those of a shard in the
// order of pos, and only those above what the checkpoint has of it. The bytes of each are
// valid until the next.
func (s *spool) messages(last []int64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		var heads []*spoolHead
		begin := int64(0)
		for shard, end := range s.ends {
			h := &spoolHead{shard: shard, r: bufio.NewReaderSize(io.NewSectionReader(s.file, begin, end-begin), spoolBuffer)}
			begin = end
			more, err := h.next(floor(last[shard]))
			if err != nil {
				yield(message{}, err)
				return
			}
			if more {
				heads = append(heads, h)
			}
		}
		var mem []byte
		for len(heads) > 0 {
			i := eldest(heads)
			h := heads[i]
			m, err := h.message(&mem)
			if !yield(m, err) || err != nil {
				return
			}
			more, err := h.next(0)
			if err != nil {
				yield(message{}, err)
				return
			}
			if !more {
				heads = append(heads[:i], heads[i+1:]...)
			}
		}
	}
}

// eldest is which of the heads was born first.
func eldest(heads []*spoolHead) int {
	best := 0
	for i, h := range heads {
		if h.bornAt < heads[best].bornAt {
			best = i
		}
	}
	return best
}

// A spoolHead is the next frame of a shard, of which only the head was read.
type spoolHead struct {
	shard int
	r     *bufio.Reader

	pos, bornAt int64
	mirrored    bool
	id          uuid.UUID
	lens        [4]int
}

// next reads the head of the next frame above a pos; false at the shard's end.
func (h *spoolHead) next(above int64) (bool, error) {
	for {
		var b [frameHead]byte
		if _, err := io.ReadFull(h.r, b[:]); err == io.EOF {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("%w: %w", errSpool, err)
		}
		if spoolSum(0, b[:frameHead-sumSize]) != binary.BigEndian.Uint32(b[frameHead-sumSize:]) {
			return false, fmt.Errorf("%w: shard %d, behind pos %s", errSpool, h.shard, posText(h.pos))
		}
		h.pos, h.bornAt = int64(binary.BigEndian.Uint64(b[:])), int64(binary.BigEndian.Uint64(b[8:]))
		h.mirrored, h.id = b[16] != 0, uuid.UUID(b[17:33])
		size := sumSize
		for i := range h.lens {
			h.lens[i] = int(binary.BigEndian.Uint32(b[33+4*i:]))
			size += h.lens[i]
		}
		if h.pos > above {
			return true, nil
		}
		if _, err := h.r.Discard(size); err != nil {
			return false, fmt.Errorf("%w: %w", errSpool, err)
		}
	}
}

// message reads the rest of the frame into mem.
func (h *spoolHead) message(mem *[]byte) (message, error) {
	size := sumSize
	for _, n := range h.lens {
		size += n
	}
	if cap(*mem) < size {
		*mem = make([]byte, size)
	}
	rest := (*mem)[:size]
	if _, err := io.ReadFull(h.r, rest); err != nil {
		return message{}, fmt.Errorf("%w: %w", errSpool, err)
	}
	rest = rest[:size-sumSize]
	if spoolSum(0, rest) != binary.BigEndian.Uint32((*mem)[size-sumSize:]) {
		return message{}, fmt.Errorf("%w: shard %d, pos %s", errSpool, h.shard, posText(h.pos))
	}
	cut := func(n int) (part []byte) {
		part, rest = rest[:n:n], rest[n:]
		return part
	}
	m := message{shard: h.shard, pos: h.pos, id: h.id, mirrored: h.mirrored, bornAt: h.bornAt}
	m.topic, m.key, m.headers, m.body = cut(h.lens[0]), cut(h.lens[1]), cut(h.lens[2]), cut(h.lens[3])
	return m, nil
}
