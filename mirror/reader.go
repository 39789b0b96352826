package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"notifymirror/canal"
	"notifymirror/mirror/record"
)

// foreignEvery is how often a position behind foreign transactions alone is handed on.
const foreignEvery = 100 * time.Millisecond

// A reader turns a store's transactions into chunks. It is the only one that counts: seq,
// pos and the position of everything handed on are in at.
type reader struct {
	config  Config
	rows    rowDecoder
	router  router
	topics  *topics
	order   order
	at      checkpoint
	memory  *semaphore.Weighted
	pool    *chunkPool
	out     chan<- *chunk
	lag     *lag
	metrics *storeMetrics

	handed time.Time
	batch  batch // of the chunk being filled
	chunk  *chunk
}

// run copies what is in the spool, nil for none, then reads until the source ends; it closes out.
func (r *reader) run(ctx context.Context, sp *spool, src source) error {
	defer close(r.out)
	if sp != nil {
		if err := r.backfill(ctx, sp); err != nil {
			return err
		}
	}
	for t, err := range src.txns(ctx) {
		if err != nil {
			return err
		}
		if err := r.take(ctx, t); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.New("binlog stream: ended")
}

// take hands on what a transaction holds.
func (r *reader) take(ctx context.Context, t txn) error {
	if string(t.server) != r.at.Server {
		return halt(ReasonServer, serverRepair, fmt.Errorf("%w: %w: transactions come from %s, the checkpoint is of %s; %s",
			ErrServerChanged, errElsewhere, t.server, r.at.Server, r.at.risk(ReasonServer)))
	}
	switch t.kind {
	case canal.Heartbeat:
		r.at.GTIDs = t.after().GTIDs
		return r.hand(ctx, r.lag.beat(t.came), t.end)
	case canal.Foreign:
		return r.foreign(ctx, t)
	case canal.Rows:
		return r.messages(ctx, t)
	}
	return haltf(ReasonUnknownEvent, ErrStream, "update canald", "transaction %s is of an unknown kind %d", t.gtid, t.kind)
}

func (r *reader) foreign(ctx context.Context, t txn) error {
	r.metrics.foreign.Inc()
	r.lag.read(t.commitTime, t.end)
	if time.Since(r.handed) < foreignEvery {
		return nil // a later one, or the next heartbeat, takes the position along
	}
	r.at.GTIDs = t.after().GTIDs
	return r.hand(ctx, t.commitTime, t.end)
}

// messages copies a transaction's message inserts. Those of an open transaction that are
// in Kafka already are skipped.
func (r *reader) messages(ctx context.Context, t txn) error {
	var skip uint64
	last := lastTxn{GTID: t.gtid, CommittedAt: t.commitTime.UnixMicro(), Hash: hashStart}
	if open := r.at.OpenGTID; open != "" {
		if open != t.gtid {
			return haltf(ReasonServer, ErrServerChanged, serverRepair, "transaction %s comes where %s, which is half copied, was; %s", t.gtid, open, r.at.risk(ReasonServer))
		}
		skip, last = r.at.OpenCopied, r.at.Last
	}
	r.lag.read(t.commitTime, t.end)
	r.metrics.messages.Inc()
	source := record.Source{Store: r.at.Store, Generation: r.at.Generation}
	var n uint64
	again := lastTxn{Hash: hashStart} // what was copied before
	for row, err := range t.rows {
		if err != nil {
			return err
		}
		m, err := r.rows.message(row)
		if err != nil {
			return halt(ReasonRow, rowRepair, fmt.Errorf("transaction %s: %w", t.gtid, err))
		}
		if n++; n <= skip {
			if again.add(m); n == skip && !again.sameMessages(r.at.Last) {
				return otherMessages(r.at)
			}
			continue
		}
		if r.order.copied(m.shard, m.pos) {
			r.metrics.backfilled.Inc()
			last.add(m)
			r.at.Last = last
			continue
		}
		if !m.mirrored {
			r.metrics.unmirrored.Inc()
		} else {
			if err := r.copy(ctx, t, m, stamp{source, r.at.Seq + 1, t.commitTime}, n-1); err != nil {
				return err
			}
		}
		if err := r.order.take(m.shard, m.pos); err != nil {
			return halt(ReasonOrder, acceptGap, fmt.Errorf("transaction %s: %w", t.gtid, err))
		}
		r.at.Seq++
		last.add(m)
		r.at.Last = last
	}
	if n < skip {
		return otherMessages(r.at)
	}
	r.at.GTIDs, r.at.OpenGTID, r.at.OpenCopied = t.after().GTIDs, "", 0
	return r.hand(ctx, t.commitTime, t.end)
}

// copy puts a message's record into the chunk, and hands the chunk on first when it is
// full; copied is the number of the transaction's messages before this one.
func (r *reader) copy(ctx context.Context, t txn, m message, s stamp, copied uint64) error {
	topic, fresh, err := r.topics.find(ctx, m.topic, r.at.Generation, r.at.Seq)
	if err != nil {
		return err
	}
	routed, size, err := r.router.route(m, s, topic)
	if err != nil {
		return halt(ReasonRow, rowRepair, fmt.Errorf("%s: %w", t.name(), err))
	}
	if size > topic.limit {
		if topic.limit, err = r.topics.kafka.messageLimit(topic.Topic); err != nil {
			return err
		}
		if size > topic.limit {
			return tooLarge(m, topic, size, r.config.Kafka.Brokers)
		}
	}
	large := size >= largeRecord
	if !r.batch.fits(1, size, topic.limit) || large && r.batch.n > 0 {
		r.at.OpenGTID, r.at.OpenCopied = t.gtid, copied
		if err := r.hand(ctx, t.commitTime, canal.Place{}); err != nil {
			return err
		}
	}
	c := r.current()
	if large { // wait for its memory before it is taken
		if err := r.reserve(ctx, c, int64(size)+itemMemory); err != nil {
			return err
		}
	}
	if fresh {
		c.fresh = append(c.fresh, topic.topicRecord)
	}
	c.add(routed, size, topic)
	r.batch.add(1, size, topic.limit, time.Time{})
	return nil
}

func (r *reader) current() *chunk {
	if r.chunk == nil {
		r.chunk = r.pool.get()
	}
	return r.chunk
}

// hand gives the chunk to the writer, with the checkpoint behind it; instant is the commit
// time of what was read last, or the time of a heartbeat, and end where that ends; the zero
// place for a piece of a transaction.
func (r *reader) hand(ctx context.Context, instant time.Time, end canal.Place) error {
	c := r.current()
	r.chunk = nil
	r.batch.reset()
	shards := c.at.Shards
	c.at = r.at
	c.at.Shards = r.order.positions(shards[:0])
	c.instant, c.end = latest(instant, c.items), end
	if err := r.reserve(ctx, c, c.memory); err != nil {
		return err
	}
	r.metrics.buffered.Add(float64(c.held))
	r.handed = time.Now()
	select {
	case r.out <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// largeRecord is the size from which a record begins a chunk.
const largeRecord = 1 << 20

// reserve gives a chunk so much of the memory budget, or all of that.
func (r *reader) reserve(ctx context.Context, c *chunk, bytes int64) error {
	more := min(bytes, int64(r.config.Memory)) - c.held
	if more <= 0 {
		return nil
	}
	if err := r.memory.Acquire(ctx, more); err != nil {
		return err
	}
	c.held += more
	return nil
}

// latest is the later of a commit time, which on MariaDB is cut to whole seconds, and the
// birth of the last message committed with it.
func latest(instant time.Time, items []item) time.Time {
	if n := len(items); n > 0 {
		if born := time.UnixMicro(items[n-1].bornAt); born.After(instant) {
			return born
		}
	}
	return instant
}

const (
	// resumeCommand is how a mirror that has halted goes on behind a gap, backfillCommand how
	// it copies what the store still holds of it, and resetCommand how it begins again.
	resumeCommand   = "notify mirror resume"
	backfillCommand = "notify mirror backfill"
	resetCommand    = "notify mirror checkpoint reset"
)

const (
	// acceptGap is how an operator goes on when something cannot be copied any more.
	acceptGap = "what was in between is lost to the mirror: continue with `notify mirror resume --accept-gap`"
	// serverRepair is for a server that is not the one copied from.
	serverRepair = "point the dsn back to the server that was copied from; after a failover or a restore " + acceptGap
	// rowRepair is for rows that notifyd does not write.
	rowRepair = "only notifyd may insert there, with binlog_row_image FULL, MINIMAL or NOBLOB: find who wrote it; " + acceptGap
)
