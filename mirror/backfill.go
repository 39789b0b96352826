package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"notifymirror/canal"
	"notifymirror/mirror/record"
)

// A backfill is what of a store is copied from its tables before its binlog is read: what
// the binlog no longer has. It is part of the checkpoint, so that whoever takes over goes on
// with it.
//
//	wanted --- the first snapshot ---> under way --- all is copied ---> none
//	            position, until         |     ^
//	                                    +-----+ a successor without the spool takes another
//	                                            snapshot, of what is left up to until
//
// While it is under way the checkpoint's position is that of the first snapshot, and its
// Shards move up to Until.
type backfill struct {
	// Wanted tells that the first snapshot is still to be taken.
	Wanted bool `json:"wanted,omitempty"`
	// Until is the highest pos of each shard in the first snapshot.
	Until []int64 `json:"until,omitempty"`
	// Spool names the file that holds the snapshot, on the machine that took it.
	Spool string `json:"spool,omitempty"`
	// Messages are those of the snapshot and those copied before it, Copied those in Kafka.
	Messages uint64 `json:"messages,omitempty"`
	Copied   uint64 `json:"copied,omitempty"`
}

// pending tells that there is something left to do.
func (b backfill) pending() bool { return b.Wanted || b.Until != nil }

// progress is the backfill for people; nil when there is none.
func (b backfill) progress() *Progress {
	if !b.pending() {
		return nil
	}
	return &Progress{Read: b.Messages, Messages: b.Messages, Copied: b.Copied}
}

// A Progress is how far a backfill has come.
type Progress struct {
	// Read counts the messages in the spool so far, and Messages all, 0 until they are read.
	Read     uint64 `json:"read"`
	Messages uint64 `json:"messages"`
	// Copied counts those that are in Kafka.
	Copied uint64 `json:"copied"`
}

// String is for people.
func (p *Progress) String() string {
	if p.Messages == 0 {
		return fmt.Sprintf("reads the store's tables, %d messages so far", p.Read)
	}
	return fmt.Sprintf("%d of %d messages copied", p.Copied, p.Messages)
}

// backfill prepares what is to be copied from the tables before the binlog is read: the spool
// of the snapshot, which is taken anew where the spool is not at hand. nil: nothing is. The
// writer's checkpoint, and that of s, are brought up to date.
func (c *Copier) backfill(ctx context.Context, s *start, w *writer) (*spool, error) {
	b := &s.at.Backfill
	id, err := s.kafka.clusterID()
	if err != nil {
		return nil, err
	}
	owner := spoolOwner(s.at.Store, c.config.Cluster, id)
	removeSpools(c.config.SpoolDir, owner, b.Spool)
	if !b.pending() {
		return nil, nil
	}
	if b.Spool != "" {
		sp, err := openSpool(spoolPath(c.config.SpoolDir, owner, b.Spool), len(b.Until))
		if err == nil {
			c.log.Info("backfill goes on", "copied", b.Copied, "messages", b.Messages)
			return sp, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("spool of the backfill not usable, taking another snapshot", "err", err)
		}
	}
	sp, err := c.readTables(ctx, s, w, owner)
	if err != nil {
		return nil, err
	}
	w.restart(s.at)
	if err := w.commit(ctx); err != nil {
		sp.close()
		return nil, err
	}
	return sp, nil
}

// readTables takes a snapshot of what is to be copied and puts it into a spool of the owner. The first
// snapshot of a backfill is taken under lock, and gives it its position and end.
func (c *Copier) readTables(ctx context.Context, s *start, w *writer, owner string) (_ *spool, err error) {
	b := s.at.Backfill
	view, err := c.openView(ctx, s.info, b.Wanted)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, view.close()) }()
	next := s.at
	if b.Wanted {
		next.GTIDs, next.OpenGTID, next.OpenCopied = view.position().GTIDs, "", 0
		next.Last = lastTxn{CommittedAt: view.takenAt()}
		if b.Until, err = ends(ctx, view, s.at.Shards); err != nil {
			return nil, err
		}
		b.Wanted = false
	}
	name := newSpoolName()
	sp, err := c.fillSpool(ctx, spoolPath(c.config.SpoolDir, owner, name), view, next, b.Until, w)
	if err != nil {
		return nil, err
	}
	if left := b.Messages - b.Copied; sp.count < left {
		c.log.Warn("messages of the backfill were delivered and deleted before they were read, and are not in the mirror", "messages", left-sp.count)
	}
	b.Spool, b.Messages = name, b.Copied+sp.count
	next.Backfill = b
	s.at = next
	c.log.Info("backfill begins", "messages", sp.count, "copied", b.Copied, "position", next.GTIDs)
	return sp, nil
}

// ends are the highest pos of each shard in a snapshot, or before.
func ends(ctx context.Context, view snapshot, shards []int64) ([]int64, error) {
	until := make([]int64, len(shards))
	for shard, last := range shards {
		highest, err := view.highest(ctx, shard)
		if err != nil {
			return nil, err
		}
		until[shard] = max(highest, floor(last))
	}
	return until, nil
}

// spoolSteps is how many messages are read from the tables between two looks at the clock.
const spoolSteps = 1000

// fillSpool reads each shard from the checkpoint's pos up to until. Now and then the old
// checkpoint is written again: whoever is active no more learns it, and Kafka's connections
// stay open.
func (c *Copier) fillSpool(ctx context.Context, path string, view snapshot, at checkpoint, until []int64, w *writer) (*spool, error) {
	to, err := createSpool(path, int64(c.config.SpoolBytes))
	if err != nil {
		return nil, err
	}
	defer to.discard()
	for shard := range until {
		for m, err := range view.rows(ctx, shard, floor(at.Shards[shard]), until[shard]) {
			if err == nil {
				err = to.add(m)
			}
			if err == nil && to.count%spoolSteps == 0 {
				c.board.spooled(to.count)
				if time.Since(w.written) > c.lookEvery {
					err = w.commit(ctx)
				}
			}
			if err != nil {
				return nil, err
			}
		}
		to.endShard()
	}
	return to.finish()
}

// backfill copies what is in the spool and not in Kafka yet. Behind it the binlog is read as
// if all of it had come from there.
func (r *reader) backfill(ctx context.Context, sp *spool) error {
	source := record.Source{Store: r.at.Store, Generation: r.at.Generation}
	for m, err := range sp.messages(r.order.last) {
		if err != nil {
			sp.remove() // the next run takes another snapshot
			return err
		}
		if !m.mirrored {
			r.metrics.unmirrored.Inc()
		} else if err := r.copy(ctx, txn{}, m, stamp{source, r.at.Seq + 1, time.UnixMicro(m.bornAt)}, 0); err != nil {
			return err
		}
		r.order.last[m.shard] = above(m.pos)
		r.at.Seq++
		r.at.Backfill.Copied++
	}
	if b := r.at.Backfill; b.Copied != b.Messages {
		sp.remove()
		return fmt.Errorf("%w: it ended behind %d of %d messages", errSpool, b.Copied, b.Messages)
	}
	for shard, until := range r.at.Backfill.Until {
		r.order.last[shard] = above(until)
	}
	r.at.Backfill = backfill{}
	return r.hand(ctx, time.Time{}, canal.Place{})
}
