package canal

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/go-mysql-org/go-mysql/replication"
)

// Large events: rows and compressed transactions are read as streams, so that what is not
// kept costs nothing and what is kept goes to the spool file. Remarks are skipped. The others
// are read whole, up to a limit.

// leading is how much of a large event is read first: enough for all that stands before its
// rows, or before what is compressed.
const leading = 16 << 10

// lead reads the first bytes of a large event into its body, or all.
func (a *assembler) lead(e *event) error {
	n := e.size
	switch {
	case isRows(e.typ), e.typ == replication.TRANSACTION_PAYLOAD_EVENT:
		n = min(n, leading)
	case isRemark(e.typ):
		return nil
	case n > a.limits.event:
		return tooLarge(fmt.Sprintf("%s of %d bytes", e.typ, n), a.limits.event)
	}
	e.body = make([]byte, n)
	if _, err := io.ReadFull(e.rest, e.body); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

func isRows(t replication.EventType) bool {
	switch t {
	case replication.WRITE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv1,
		replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1, replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1,
		replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1:
		return true
	}
	return isRowsV2(t)
}

// isRemark: the text of a statement beside its rows, and files of LOAD DATA.
func isRemark(t replication.EventType) bool {
	switch t {
	case replication.ROWS_QUERY_EVENT, replication.MARIADB_ANNOTATE_ROWS_EVENT, replication.IGNORABLE_EVENT,
		replication.BEGIN_LOAD_QUERY_EVENT, replication.APPEND_BLOCK_EVENT:
		return true
	}
	return false
}

func tooLarge(what string, limit int64) *StopError {
	return &StopError{
		Reason: ErrTooLarge, What: fmt.Sprintf("%s, the limit is %d", what, limit),
		Mend: "keep max_allowed_packet at 64M on the server, so that no statement makes one; " + acceptGap,
	}
}

// behind is a large event from a place in its body on.
func (e *event) behind(b []byte) io.Reader {
	if e.rest == nil {
		return bytes.NewReader(b)
	}
	return io.MultiReader(bytes.NewReader(b), e.rest)
}

// A stretch is rows of a known length that are still to be read.
type stretch struct {
	in     io.Reader
	length int64
	err    error // what reading failed with
}

func (s *stretch) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// stretch is the rows of an event, if they are too many to be read whole; else nil.
// Compressed rows are inflated by it.
func (r *rowsEvent) stretch(e *event) (*stretch, error) {
	if e.typ != replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1 {
		if e.rest == nil {
			return nil, nil
		}
		return &stretch{in: e.behind(r.rows), length: e.size - int64(len(e.body)-len(r.rows))}, nil
	}
	length, data, err := inflated(r.rows)
	if err != nil || e.rest == nil && length < largeEvent {
		return nil, err
	}
	z, err := zlib.NewReader(e.behind(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return &stretch{in: z, length: length}, nil
}
