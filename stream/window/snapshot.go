package window

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"

	"github.com/axiomhq/hyperloglog"
)

// The layout of a snapshot; numbers are varints, u unsigned and s signed, and texts have
// their length, u, before them. It is the same for the same state but for the sketches.
//
//	version 1, one byte
//	size s, slide s, distinct u
//	marked u, mark s, late s
//	inputs u, and of each: input s, latest s
//	windows u, and of each: start s, keys u, and of each key:
//	    key text, count s, sum s, min s, max s, sketch text
//	CRC-32 of all before it, four bytes, little endian
const snapshotVersion = 1

// Snapshot is the state as bytes, for Restore.
func (w *Windows) Snapshot() ([]byte, error) {
	b := []byte{snapshotVersion}
	s := func(vs ...int64) {
		for _, v := range vs {
			b = binary.AppendVarint(b, v)
		}
	}
	u := func(v int) { b = binary.AppendUvarint(b, uint64(v)) }
	flag := func(v bool) {
		if v {
			u(1)
		} else {
			u(0)
		}
	}
	text := func(t []byte) { u(len(t)); b = append(b, t...) }

	s(int64(w.cfg.Size), int64(w.cfg.Slide))
	flag(w.cfg.Distinct)
	flag(w.marked)
	s(w.mark, w.late)
	u(len(w.inputs))
	for _, input := range slices.Sorted(maps.Keys(w.inputs)) {
		s(int64(input), w.inputs[input])
	}
	u(len(w.open))
	for _, start := range w.starts() {
		s(start)
		keys := w.open[start]
		u(len(keys))
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			a := keys[key]
			text([]byte(key))
			s(a.Count, a.Sum, a.Min, a.Max)
			var sketch []byte
			if a.items != nil {
				var err error
				if sketch, err = a.items.MarshalBinary(); err != nil {
					return nil, fmt.Errorf("distinct count of key %q: %w", key, err)
				}
			}
			text(sketch)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)), nil
}

// Restore makes windows with the state of a snapshot, or with none for empty bytes. Size,
// Slide and Distinct must be those of the snapshot; the other fields may differ. The error
// wraps ErrSnapshot, or says what is wrong with the configuration.
func Restore(cfg Config, snapshot []byte) (*Windows, error) {
	w, err := New(cfg)
	if err != nil || len(snapshot) == 0 {
		return w, err
	}
	body := len(snapshot) - crc32.Size
	if body < 1 || crc32.ChecksumIEEE(snapshot[:body]) != binary.LittleEndian.Uint32(snapshot[body:]) {
		return nil, fmt.Errorf("%w: the checksum is wrong", ErrSnapshot)
	}
	if snapshot[0] != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d, this program reads %d", ErrSnapshot, snapshot[0], snapshotVersion)
	}
	r := reader{rest: snapshot[1:body]}
	if err := w.restore(&r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return w, nil
}

func (w *Windows) restore(r *reader) error {
	if size, slide, distinct := r.s(), r.s(), r.u() == 1; r.err == nil &&
		(size != int64(w.cfg.Size) || slide != int64(w.cfg.Slide) || distinct != w.cfg.Distinct) {
		return errors.New("it is of another Size, Slide or Distinct")
	}
	w.marked = r.u() == 1
	w.mark, w.late = r.s(), r.s()
	for range r.count() {
		input := r.s()
		w.inputs[int32(input)] = r.s()
	}
	for range r.count() {
		start, keys := r.s(), map[string]Aggregate{}
		for range r.count() {
			key := string(r.text())
			a := Aggregate{Count: r.s(), Sum: r.s(), Min: r.s(), Max: r.s()}
			if sketch := r.text(); len(sketch) > 0 {
				a.items = new(hyperloglog.Sketch)
				if err := a.items.UnmarshalBinary(sketch); err != nil {
					return err
				}
			}
			keys[key] = a
		}
		w.open[start] = keys
		w.cells += len(keys)
	}
	if r.err == nil && len(r.rest) > 0 {
		return errors.New("bytes are left over")
	}
	return r.err
}

// reader reads a snapshot; after the first error it reads zeros.
type reader struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends too early")

func (r *reader) s() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) u() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.rest, r.err = nil, errShort
		return
	}
	r.rest = r.rest[n:]
}

// count is how many things follow, each of which takes a byte at least.
func (r *reader) count() int {
	n := r.u()
	if n > uint64(len(r.rest)) || n > math.MaxInt32 {
		r.rest, r.err = nil, errShort
		return 0
	}
	return int(n)
}

func (r *reader) text() []byte {
	n := r.count()
	t := r.rest[:n]
	r.rest = r.rest[n:]
	return t
}
