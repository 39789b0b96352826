package mirror

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"
)

// A sightingFile keeps sightings in a file that nobody else sees, in any order, so that memory
// does not grow with the messages compared. Each takes 52 bytes, big-endian:
//
//	8 minute, 16 id, 4 place, 8 generation, 8 seq, 8 offset
type sightingFile struct {
	file *os.File
	w    *bufio.Writer
}

const sightingSize = 52

// newSightingFile makes it in a directory; "": the system's for temporary files.
func newSightingFile(dir string) (*sightingFile, error) {
	f, err := os.CreateTemp(dir, "notify-verify-*")
	if err != nil {
		return nil, fmt.Errorf("spool_dir: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil { // it ends with the process, however that ends
		return nil, errors.Join(fmt.Errorf("spool_dir: %w", err), f.Close())
	}
	return &sightingFile{file: f, w: bufio.NewWriterSize(f, 1<<18)}, nil
}

func (f *sightingFile) close() error { return f.file.Close() }

func (f *sightingFile) add(s sighting) error {
	var b [sightingSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(s.minute))
	copy(b[8:], s.id[:])
	binary.BigEndian.PutUint32(b[24:], uint32(s.place))
	binary.BigEndian.PutUint64(b[28:], s.generation)
	binary.BigEndian.PutUint64(b[36:], s.seq)
	binary.BigEndian.PutUint64(b[44:], uint64(s.offset))
	if _, err := f.w.Write(b[:]); err != nil {
		return fmt.Errorf("spool_dir: %w", err)
	}
	return nil
}

// of returns the sightings of some minutes.
func (f *sightingFile) of(minutes map[int64]bool) (found []sighting, err error) {
	err = f.w.Flush()
	if err == nil {
		_, err = f.file.Seek(0, io.SeekStart)
	}
	r := bufio.NewReaderSize(f.file, 1<<18)
	for err == nil {
		var b [sightingSize]byte
		if _, err = io.ReadFull(r, b[:]); err != nil {
			break
		}
		if minute := int64(binary.BigEndian.Uint64(b[:])); minutes[minute] {
			found = append(found, sighting{
				minute: minute, id: uuid.UUID(b[8:24]), place: int32(binary.BigEndian.Uint32(b[24:])),
				generation: binary.BigEndian.Uint64(b[28:]), seq: binary.BigEndian.Uint64(b[36:]), offset: int64(binary.BigEndian.Uint64(b[44:])),
			})
		}
	}
	if err != io.EOF {
		return nil, fmt.Errorf("spool_dir: %w", err)
	}
	return found, nil
}
