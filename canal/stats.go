package canal

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// A Cause says why a connection was made anew.
type Cause string

const (
	Timeout Cause = "timeout" // nothing came for Config.ReadTimeout
	EOF     Cause = "eof"     // the connection was cut
	Killed  Cause = "killed"  // the server ended it: shutdown, KILL, another reader with our server id
	Refused Cause = "refused" // the connection could not be made
	Damaged Cause = "damaged" // an event could not be decoded, or its file ends within it
)

// Causes are all causes.
func Causes() []Cause { return []Cause{Timeout, EOF, Killed, Refused, Damaged} }

// Stats is a snapshot of a tailer's counters, for metrics.
type Stats struct {
	// Connected: the stream is open and its first event came.
	Connected bool
	// Reconnects by cause: connections lost, or not made, since the tailer was made.
	Reconnects map[Cause]uint64
	// Bytes of events read, after TLS, before decompression.
	Bytes uint64
	// RowTxns, ForeignTxns are the transactions handed out; Heartbeats those received.
	RowTxns, ForeignTxns, Heartbeats uint64
	// Spooled counts transactions that went to a file; Voided those cut off before their end.
	Spooled, Voided uint64
	// BufferedBytes of row events are read and not yet taken.
	BufferedBytes int64
	// LastEvent is when the last event came, by our clock; zero before the first.
	LastEvent time.Time
}

// stats are the live counters.
type stats struct {
	connected                        atomic.Bool
	bytes                            atomic.Uint64
	rowTxns, foreignTxns, heartbeats atomic.Uint64
	spooled, voided                  atomic.Uint64
	buffered                         atomic.Int64
	lastEvent                        atomic.Int64 // nanoseconds since 1970

	mu         sync.Mutex
	reconnects map[Cause]uint64
}

func (s *stats) reconnect(c Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reconnects == nil {
		s.reconnects = map[Cause]uint64{}
	}
	s.reconnects[c]++
}

func (s *stats) snapshot() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{
		Connected: s.connected.Load(), Reconnects: maps.Clone(s.reconnects), Bytes: s.bytes.Load(),
		RowTxns: s.rowTxns.Load(), ForeignTxns: s.foreignTxns.Load(), Heartbeats: s.heartbeats.Load(),
		Spooled: s.spooled.Load(), Voided: s.voided.Load(), BufferedBytes: s.buffered.Load(),
	}
	if ns := s.lastEvent.Load(); ns != 0 {
		out.LastEvent = time.Unix(0, ns)
	}
	return out
}
