package canal

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"golang.org/x/sync/semaphore"
)

// A stream is one connection that reads the binlog. go-mysql's goroutine reads events,
// assembles them and puts whole transactions into items; the caller of next takes them.
// A second goroutine waits for the first one's end.
type stream struct {
	items chan item
	ended chan error // go-mysql's goroutine will put nothing more into items
	over  error      // what came out of ended
	wire  *wire
	sync  *replication.BinlogSyncer
	sink  *sink
	stop  context.CancelFunc
	wait  sync.WaitGroup
}

// An item is a transaction, or a heartbeat when txn is nil.
type item struct {
	txn  *txn
	came time.Time
	end  Place
}

// loginTimeout bounds each answer of a server before it streams.
const loginTimeout = 10 * time.Second

// queued is how many transactions may wait, whatever their size; their rows are bounded
// by Config.MemoryBytes.
const queued = 512

// openStream asks the server for everything behind a set. It blocks until the server
// has answered, ctx has ended or Config.ReadTimeout has passed.
func openStream(ctx context.Context, c *Config, f Flavor, from *gtidSet, fold bool, st *stats) (*stream, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &stream{
		items: make(chan item, queued), ended: make(chan error, 1), stop: stop,
		wire: &wire{bytes: &st.bytes, idle: c.ReadTimeout, seek: c.SeekTimeout, login: max(loginTimeout, c.ReadTimeout)},
	}
	s.sink = newSink(ctx, c, f, fold, s, st)
	cfg := replication.BinlogSyncerConfig{
		ServerID: c.ServerID, Flavor: string(f), Host: c.Addr, User: c.User, Password: c.Password, TLSConfig: c.TLS,
		RawModeEnabled:          true, // decoding is ours
		HeartbeatPeriod:         c.HeartbeatPeriod,
		DisableRetrySync:        true, // it would go on inside a transaction
		VerifyChecksum:          true,
		DiscardGTIDSet:          true,
		EventCacheCount:         1, // its channel is not used
		SynchronousEventHandler: s.sink,
		Logger:                  slog.New(slog.DiscardHandler),
		Dialer:                  s.wire.dialer(ctx),
		Option: func(c *client.Conn) error {
			s.sink.frames.install(c)
			return sessionSettings(c)
		},
	}
	if cfg.ServerID == 0 {
		cfg.ServerID = 1<<31 + rand.Uint32N(1<<31-1)
	}
	s.sync = replication.NewBinlogSyncer(cfg)
	gset, err := librarySet(from)
	if err == nil {
		var events *replication.BinlogStreamer
		if events, err = s.sync.StartSyncGTID(gset); err == nil {
			s.wire.seeking()
			s.wait.Go(func() { s.watch(ctx, events) })
			return s, nil
		}
	}
	s.close()
	return nil, err
}

// sessionSettings: a reader that waits for Kafka must not be dropped after a minute.
func sessionSettings(c *client.Conn) error {
	_, err := c.Execute("SET SESSION net_write_timeout = 600, SESSION net_read_timeout = 600")
	return err
}

// librarySet is a copy for go-mysql, which changes the set that it is given.
func librarySet(s *gtidSet) (gomysql.GTIDSet, error) {
	if s.flavor == MariaDB {
		return gomysql.ParseMariadbGTIDSet(s.text())
	}
	return gomysql.ParseMysqlGTIDSet(s.text())
}

// watch waits for the end of go-mysql's goroutine.
func (s *stream) watch(ctx context.Context, events *replication.BinlogStreamer) {
	for {
		if _, err := events.GetEvent(ctx); err != nil {
			s.ended <- err
			return
		}
	}
}

// next returns the next item. After an error the stream can only be closed: everything
// whole that came before the error has been returned.
func (s *stream) next(ctx context.Context) (item, error) {
	for {
		select {
		case it := <-s.items:
			return it, nil
		default:
		}
		if s.over != nil {
			return item{}, s.over
		}
		select {
		case it := <-s.items:
			return it, nil
		case <-ctx.Done():
			return item{}, ctx.Err()
		case s.over = <-s.ended: // what it put into items before is looked for once more
			if s.sink.err != nil {
				s.over = s.sink.err
			}
		}
	}
}

// close ends everything that openStream began. It is bounded: the connection is closed
// under go-mysql's feet, and no new one, which it would use to KILL, can be made; the
// server's thread ends at its next heartbeat.
func (s *stream) close() {
	s.stop()
	s.wire.cut()
	s.sync.Close()
	s.wait.Wait()
	s.sink.assembler.void()
	s.sink.countVoids()
	for {
		select {
		case it := <-s.items:
			if it.txn != nil && it.txn.rows != nil {
				it.txn.rows.release()
			}
		default:
			return
		}
	}
}

// A sink is the end of go-mysql's goroutine: it takes every event.
type sink struct {
	ctx       context.Context // of the stream; the handler's interface has none
	assembler *assembler
	stream    *stream
	stats     *stats
	frames    *frames
	at        Place // behind the last event
	flowing   bool
	err       error // what ended it; read after the stream's end
}

func newSink(ctx context.Context, c *Config, f Flavor, fold bool, s *stream, st *stats) *sink {
	budget := semaphore.NewWeighted(c.MemoryBytes)
	most := c.MemoryBytes - c.SpoolAbove // so that an open transaction can always finish
	limits := bufferLimits{
		dir: c.SpoolDir, memory: c.SpoolAbove, disk: c.SpoolLimit, event: c.MemoryBytes,
		take: func(n int64) (int64, error) {
			n = min(n, most)
			if err := budget.Acquire(ctx, n); err != nil {
				return 0, err
			}
			st.buffered.Add(n)
			return n, nil
		},
		give: func(n int64) {
			budget.Release(n)
			st.buffered.Add(-n)
		},
		spilling: func() { st.spooled.Add(1) },
	}
	w := watch{schema: c.Schema, table: c.Watch, columns: c.Columns, fold: fold}
	k := &sink{ctx: ctx, assembler: newAssembler(f, w, limits), stream: s, stats: st}
	k.frames = &frames{large: k.handleLarge}
	return k
}

// HandleEvent is called for each event in order. What it returns ends the stream.
func (k *sink) HandleEvent(e *replication.BinlogEvent) error {
	now := time.Now()
	k.stats.lastEvent.Store(now.UnixNano())
	if e.Header.LogPos > 0 { // 0 in events that are not in the file
		k.at.Offset = int64(e.Header.LogPos)
	}
	ev := event{typ: e.Header.EventType, flags: e.Header.Flags, when: e.Header.Timestamp, server: e.Header.ServerID}
	switch b := e.Event.(type) {
	case *replication.FormatDescriptionEvent:
		k.frames.checksums = b.ChecksumAlgorithm == replication.BINLOG_CHECKSUM_ALG_CRC32
	case *replication.GenericEvent:
		ev.body = b.Data
		k.stats.connected.Store(true)
	case *replication.RotateEvent:
		k.at = Place{File: string(b.NextLogName), Offset: int64(b.Position)}
	}
	if isHeartbeat(ev.typ) {
		k.begun()
		k.stats.heartbeats.Add(1)
		k.heartbeat(now)
		return nil
	}
	t, err := k.assembler.push(ev)
	k.err = k.queue(t, now, err)
	return k.err
}

// handleLarge is HandleEvent for an event that go-mysql does not see.
func (k *sink) handleLarge(e event, end func(error) error) error {
	now := time.Now()
	k.stats.lastEvent.Store(now.UnixNano())
	k.begun()
	t, err := k.assembler.push(e)
	k.err = k.queue(t, now, end(err))
	return k.err
}

// queue passes a transaction that came now on, if there is one and nothing went wrong.
func (k *sink) queue(t *txn, now time.Time, err error) error {
	k.countVoids()
	if k.assembler.open != nil || t != nil {
		k.begun()
	}
	if t == nil {
		return err
	}
	if err == nil {
		select {
		case k.stream.items <- item{t, now, k.at}:
			return nil
		case <-k.ctx.Done():
			err = k.ctx.Err()
		}
	}
	if t.rows != nil {
		t.rows.release()
	}
	return err
}

func (k *sink) countVoids() {
	k.stats.voided.Add(k.assembler.voids)
	k.assembler.voids = 0
}

// begun: the server found the position and sends.
func (k *sink) begun() {
	if !k.flowing {
		k.flowing = true
		k.stream.wire.streaming()
	}
}

// heartbeat passes one on unless something waits already, or a transaction is open.
func (k *sink) heartbeat(now time.Time) {
	if k.assembler.open != nil || len(k.stream.items) > 0 {
		return
	}
	select {
	case k.stream.items <- item{came: now, end: k.at}:
	default:
	}
}

func isHeartbeat(t replication.EventType) bool {
	return t == replication.HEARTBEAT_EVENT || t == replication.HEARTBEAT_LOG_EVENT_V2
}
