package mirror

import (
	"context"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/semaphore"

	"notifymirror/canal"
	"notifymirror/mirror/transact"
)

const (
	// foreignCheckpoint is how often a checkpoint is written while no message passes.
	foreignCheckpoint = time.Second
	// verifyEvery is how often, at most, the topics' ids are compared with the recorded ones.
	verifyEvery = 30 * time.Second
	// idleCheckpoint is how often one is written while nothing passes at all. Kafka forgets
	// a transactional id that was idle for seven days.
	idleCheckpoint = time.Hour
)

// A writer puts chunks into Kafka transactions, each with the checkpoint behind it.
type writer struct {
	producer *transact.Producer
	topic    string // of checkpoints
	writer   string // Checkpoint.Writer
	batch    batch
	memory   *semaphore.Weighted
	pool     *chunkPool
	lag      *lag
	metrics  *storeMetrics
	// recorded are the topics of the checkpoint topic, which verify compares with Kafka's.
	recorded map[string]topicRecord
	verify   func(map[string]topicRecord) error
	verified time.Time
	// lookEvery is how often that is done, at most.
	lookEvery time.Duration
	// saved is told every checkpoint that is in Kafka.
	saved func(checkpoint, time.Time)

	at      checkpoint // behind the last chunk taken
	instant time.Time  // with end, of the last chunk taken
	end     canal.Place
	dirty   bool // at is not in Kafka yet
	begun   time.Time
	written time.Time // of the last checkpoint
	chunks  []*chunk  // in the open transaction
	fresh   []topicRecord
}

// run writes what comes in until in is closed, and what it has when that happens.
func (w *writer) run(ctx context.Context, in <-chan *chunk) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var c *chunk
		ok := true
		select {
		case c, ok = <-in:
		default: // nothing waits: now, and only now, time counts
			timer.Reset(w.wait(time.Now()))
			select {
			case c, ok = <-in:
			case <-timer.C:
				if err := w.rest(ctx); err != nil {
					return err
				}
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !ok {
			return w.finish(ctx)
		}
		if err := w.take(ctx, c); err != nil {
			return err
		}
	}
}

// wait is how long the writer may wait for the next chunk before it commits.
func (w *writer) wait(now time.Time) time.Duration {
	switch {
	case w.batch.n > 0:
		return w.batch.wait(now)
	case w.dirty:
		return max(0, w.written.Add(foreignCheckpoint).Sub(now))
	}
	return max(0, min(w.written.Add(idleCheckpoint).Sub(now), w.verified.Add(w.lookEvery).Sub(now)))
}

// rest is what is due when nothing came for as long as wait says: a commit, or nothing but
// a look at the topics, so that one that is deleted is missed also when no message passes.
func (w *writer) rest(ctx context.Context) error {
	if w.batch.n > 0 || w.dirty || time.Since(w.written) >= idleCheckpoint {
		return w.commit(ctx)
	}
	return w.look(time.Now())
}

// look compares the topics with those recorded, when that is due.
func (w *writer) look(now time.Time) error {
	if now.Sub(w.verified) < w.lookEvery {
		return nil
	}
	if err := w.verify(w.recorded); err != nil {
		return err
	}
	w.verified = now
	return nil
}

// take puts a chunk into the open transaction, or into the next when it does not fit.
func (w *writer) take(ctx context.Context, c *chunk) error {
	n := len(c.items)
	if n > 0 && !w.batch.fits(n, c.size, c.lowest) {
		if err := w.commit(ctx); err != nil {
			return err
		}
	}
	w.adopt(c)
	if n == 0 {
		w.release(c)
		if w.batch.n == 0 {
			w.lag.settled(w.instant, w.end)
		}
		return w.overdue(ctx)
	}
	if w.batch.n == 0 {
		w.begun = time.Now()
	}
	w.chunks = append(w.chunks, c)
	w.batch.add(n, c.size, c.lowest, time.Now())
	for i := range c.items {
		it := &c.items[i]
		w.producer.Send(transact.Partition{Topic: it.topic.Topic, Number: it.partition}, it.at, &it.record)
	}
	if w.batch.full() || time.Since(w.begun) > w.producer.Timeout()/3 {
		return w.commit(ctx)
	}
	return nil
}

// overdue commits what waits for a checkpoint when chunks without records keep the writer
// from ever waiting.
func (w *writer) overdue(ctx context.Context) error {
	if w.dirty && w.wait(time.Now()) == 0 {
		return w.commit(ctx)
	}
	return nil
}

// adopt makes the chunk's checkpoint the writer's.
func (w *writer) adopt(c *chunk) {
	w.dirty = w.dirty || c.at.GTIDs != w.at.GTIDs || c.at.Seq != w.at.Seq || c.at.OpenCopied != w.at.OpenCopied ||
		c.at.Backfill.pending() != w.at.Backfill.pending()
	shards := append(w.at.Shards[:0], c.at.Shards...)
	w.at = c.at
	w.at.Shards = shards
	w.instant = c.instant
	if c.end.File != "" {
		w.end = c.end
	}
	w.fresh = append(w.fresh, c.fresh...)
}

// restart makes at the checkpoint that is written next; nothing is in the open transaction.
func (w *writer) restart(at checkpoint) {
	w.at = at
	w.at.Shards = slices.Clone(at.Shards)
}

// commit writes the checkpoint, with the records of the open transaction or alone.
func (w *writer) commit(ctx context.Context) error {
	if err := w.look(time.Now()); err != nil {
		return err
	}
	now := time.Now()
	if w.batch.n == 0 {
		w.begun = now
	}
	w.at.Writer, w.at.WrittenAt = w.writer, now.UnixMicro()
	for _, t := range w.fresh {
		key, value := encodeTopic(t)
		w.send(now, key, value)
	}
	w.send(now, []byte(checkpointKey), encodeCheckpoint(w.at))
	if err := w.producer.Commit(ctx); err != nil {
		return err
	}
	w.committed(time.Now())
	return nil
}

// send adds a record for the checkpoint topic.
func (w *writer) send(now time.Time, key, value []byte) {
	w.producer.Send(transact.Partition{Topic: w.topic}, now.Truncate(time.Millisecond), &sarama.Record{Key: key, Value: value})
}

// committed accounts for a transaction that is in Kafka.
func (w *writer) committed(now time.Time) {
	if len(w.chunks) > 0 {
		w.lag.settled(w.instant, w.end)
	}
	w.metrics.committed(w.chunks, now, now.Sub(w.begun), w.lag.age)
	for _, c := range w.chunks {
		w.release(c)
	}
	for _, t := range w.fresh {
		w.recorded[t.Topic] = t
	}
	w.chunks, w.fresh = w.chunks[:0], w.fresh[:0]
	w.batch.reset()
	w.dirty, w.written = false, now
	at := w.at
	at.Shards = slices.Clone(w.at.Shards)
	w.saved(at, now)
}

// finish commits what was taken, at the end of the stream.
func (w *writer) finish(ctx context.Context) error {
	if w.dirty || w.batch.n > 0 {
		return w.commit(ctx)
	}
	return nil
}

// release gives a chunk's memory back.
func (w *writer) release(c *chunk) {
	w.memory.Release(c.held)
	w.metrics.buffered.Sub(float64(c.held))
	w.pool.put(c)
}
