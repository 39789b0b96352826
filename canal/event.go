package canal

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
)

// readGTID opens a group for the GTID event that begins it.
func readGTID(e event) (*group, error) {
	switch e.typ {
	case replication.MARIADB_GTID_EVENT:
		return readMariaDBGTID(e)
	case replication.GTID_TAGGED_LOG_EVENT:
		return readTaggedGTID(e)
	}
	return readMySQLGTID(e)
}

// readMariaDBGTID: 8 sequence, 4 domain, 1 flags; the server is in the event's header.
func readMariaDBGTID(e event) (*group, error) {
	s := scanner{b: e.body}
	g := &group{begun: true}
	g.gtid = gtid{seq: s.uint(8), domain: uint32(s.uint(4)), server: e.server}
	g.standalone = s.uint(1)&replication.BINLOG_MARIADB_FL_STANDALONE != 0
	if s.short {
		return nil, errShort
	}
	return g, nil
}

// readMySQLGTID: 1 flags, 16 uuid, 8 number, 1 type (2), 8 last committed, 8 sequence,
// 7 commit time in microseconds, whose top bit says that the origin's time follows.
func readMySQLGTID(e event) (*group, error) {
	s := scanner{b: e.body}
	s.take(1)
	sid := s.take(16)
	no := s.uint(8)
	if s.short {
		return nil, errShort
	}
	g := &group{gtid: gtid{source: source{sid: uuid.UUID(sid)}, seq: no}}
	if s.uint(1) == replication.LogicalTimestampTypeCode {
		s.take(16)
		g.setTime(s.uint(7) &^ (1 << 55))
	}
	return g, nil
}

// readTaggedGTID reads the self-describing form: version, size, last field that must be
// known, then fields in ascending order, each its number and its value. All numbers are
// of variable length. 0 flags, 1 uuid (each byte a number), 2 number, 3 tag, 4 last
// committed, 5 sequence, 6 commit time in microseconds; what follows is not needed.
func readTaggedGTID(e event) (*group, error) {
	s := scanner{b: e.body}
	for range 3 {
		s.varuint()
	}
	g := &group{}
	for len(s.b) > 0 {
		switch field := s.varuint(); field {
		case 0:
			s.varuint()
		case 1:
			for i := range g.gtid.source.sid {
				g.gtid.source.sid[i] = byte(s.varuint())
			}
		case 2:
			g.gtid.seq = s.varuint() >> 1 // the lowest bit is the sign
		case 3:
			g.gtid.source.tag = string(s.take(int(min(s.varuint(), 1<<20))))
		case 4, 5:
			s.varuint()
		case 6:
			g.setTime(s.varuint())
		default:
			s.b = nil
		}
	}
	if s.short || g.gtid.seq == 0 {
		return nil, errShort
	}
	return g, nil
}

// varuint is a number of 1 to 9 bytes: as many low bits of the first are 1 as bytes
// follow, then a 0, then the number, little-endian.
func (s *scanner) varuint() uint64 {
	if len(s.b) == 0 {
		s.short = true
		return 0
	}
	more := bits.TrailingZeros8(^s.b[0])
	if more == 8 {
		s.take(1)
		return s.uint(8)
	}
	return s.uint(more+1) >> (more + 1)
}

func (g *group) setTime(micros uint64) {
	if micros != 0 {
		g.when = time.UnixMicro(int64(micros)).UTC()
	}
}

// A query is what a Query event says.
type query struct {
	schema []byte // the session's default
	text   []byte
}

// readQuery: 4 thread, 4 duration, 1 schema's length, 2 error, 2 length of status
// variables; EXECUTE_LOAD_QUERY has 13 bytes more; status variables, schema, 0, text.
func readQuery(e event) (query, error) {
	s := scanner{b: e.body}
	s.take(8)
	schema := int(s.uint(1))
	s.take(2)
	status := int(s.uint(2))
	if e.typ == replication.EXECUTE_LOAD_QUERY_EVENT {
		s.take(13)
	}
	s.take(status)
	q := query{schema: s.take(schema)}
	if s.take(1); s.short {
		return query{}, errShort
	}
	q.text = s.b
	if e.typ == replication.MARIADB_QUERY_COMPRESSED_EVENT {
		var err error
		if q.text, err = inflate(q.text); err != nil {
			return query{}, err
		}
	}
	return q, nil
}

// maxEvent bounds an event inside a compressed transaction: max_allowed_packet's maximum.
const maxEvent = 1 << 30

// Fields of a TRANSACTION_PAYLOAD event, each 1 type, 1 length, value; type 0 ends them.
const (
	payloadEnd         = 0
	payloadCompression = 2
)

// payload unpacks a compressed transaction as a stream, so that it need not fit into
// memory, and assembles what is inside.
func (a *assembler) payload(e event) (*txn, error) {
	if a.open == nil {
		return nil, misplaced("a compressed transaction")
	}
	s := scanner{b: e.body}
	compression := uint64(replication.ZSTD)
	for kind := s.uint(1); kind != payloadEnd && !s.short; kind = s.uint(1) {
		v := scanner{b: s.take(s.lenenc())}
		if kind == payloadCompression {
			compression = uint64(v.lenenc())
		}
	}
	if s.short {
		return nil, errShort
	}
	in := e.behind(s.b)
	switch compression {
	case replication.NONE:
	case replication.ZSTD:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		defer z.Close()
		in = z
	default:
		return nil, unknownEvent(fmt.Sprintf("transaction compressed by method %d", compression))
	}
	return a.inner(in)
}

// maxWindow bounds how far back zstd may look, and so the memory that it needs: level 20 of
// MySQL, where 3 is usual.
const maxWindow = 32 << 20

// inner assembles the events of a compressed transaction, which have no checksums.
func (a *assembler) inner(in io.Reader) (done *txn, err error) {
	var head [replication.EventHeaderSize]byte
	for {
		if _, err = io.ReadFull(in, head[:]); err == io.EOF && done != nil {
			return done, nil
		}
		if err != nil {
			return nil, a.innerError(done, err)
		}
		e := eventHead(head[:])
		if e.size < replication.EventHeaderSize || e.size > maxEvent || done != nil {
			return nil, a.innerError(done, errShort)
		}
		e.size -= replication.EventHeaderSize
		rest := &io.LimitedReader{R: in, N: e.size}
		if e.rest = rest; e.size < largeEvent {
			e.rest, e.body = nil, make([]byte, e.size)
			if _, err = io.ReadFull(rest, e.body); err != nil {
				return nil, a.innerError(done, err)
			}
		}
		switch e.typ {
		case replication.TRANSACTION_PAYLOAD_EVENT, replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT,
			replication.FORMAT_DESCRIPTION_EVENT, replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2:
			return nil, unknownEvent(fmt.Sprintf("%s inside a compressed transaction", e.typ))
		}
		if done, err = a.step(e); err != nil {
			return nil, err
		}
		if _, err = io.Copy(io.Discard, rest); err == nil && rest.N > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, a.innerError(done, err)
		}
	}
}

func (a *assembler) innerError(done *txn, err error) error {
	if done != nil && done.rows != nil {
		done.rows.release()
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return &StopError{
			Reason: ErrTooLarge, What: fmt.Sprintf("a transaction is compressed with a window above %d bytes", maxWindow),
			Mend: "set binlog_transaction_compression_level_zstd to 20 or less, in the session that set it and globally; " + acceptGap,
		}
	}
	return fmt.Errorf("%w: compressed transaction: %w", ErrCorrupt, err)
}
