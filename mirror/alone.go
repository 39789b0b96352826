package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ChangeAlone makes a change where no canald runs: it joins the store's canalds itself, becomes
// the active one, writes the new checkpoint, and leaves: it copies nothing. Where another one is
// active it changes nothing and names it. Only to accept a gap it goes on first from the checkpoint
// as a canald does, until it halts. All of it takes as long as it needs while it comes further;
// patience bounds how long it may not, and must allow for Session and for what the brokers wait for
// a new group's members. The error wraps ErrChange; no change follows it.
func ChangeAlone(ctx context.Context, config Config, store string, deps Deps, what Change, patience time.Duration) (Outcome, error) {
	c, err := New(config, store, deps)
	if err != nil {
		return Outcome{}, err
	}
	return c.changeAlone(ctx, what, patience)
}

// ReadCheckpoint is the state of a store's mirror as its checkpoint in Kafka tells it. It writes
// nothing.
func ReadCheckpoint(ctx context.Context, config Config, store string, deps Deps) (Status, error) {
	c, err := New(config, store, deps)
	if err != nil {
		return Status{}, err
	}
	if err := c.look(ctx); err != nil {
		return Status{}, err
	}
	return c.Status(), nil
}

// changeAlone is ChangeAlone of a Copier that does not run.
func (c *Copier) changeAlone(ctx context.Context, what Change, patience time.Duration) (_ Outcome, err error) {
	ctx, enough := c.patient(ctx, patience)
	defer enough()
	switch {
	case what.What == AcceptGap:
		err = c.copyToHalt(ctx)
	case what.DryRun:
		err = c.look(ctx)
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", ErrChange, err)
	}
	if what.DryRun {
		return c.Change(ctx, what)
	}
	p := wish(what, c.Status())
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // what is being written is written to its end
	p.end = stop
	c.propose(p)
	var run sync.WaitGroup
	run.Go(func() { _ = c.Run(running) }) // p gets what it returns
	defer run.Wait()
	defer stop()
	return c.await(ctx, p)
}

// copyToHalt copies until the mirror halts.
func (c *Copier) copyToHalt(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // its state is asked when ctx has ended
	halted := make(chan struct{})
	var run sync.WaitGroup
	run.Go(func() {
		if c.Run(running) != nil {
			close(halted)
		}
	})
	defer run.Wait()
	defer stop()
	return c.awaitHalt(ctx, halted)
}

// A mark is how far a Copier has come: it differs from an earlier one when it came further.
type mark struct {
	generation, seq uint64
	position, open  string
	backfill        Progress
	looked          int64
}

func (c *Copier) mark() mark {
	s := c.board.read()
	m := mark{generation: s.Generation, seq: s.Seq, position: s.Position, open: s.OpenGTID, looked: c.looked.Load()}
	if s.Backfill != nil {
		m.backfill = *s.Backfill
	}
	return m
}

// patient is ctx for as long as the Copier comes further: it ends when it has not for so long.
func (c *Copier) patient(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for last, since := c.mark(), time.Now(); time.Since(since) <= patience; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if now := c.mark(); now != last {
				last, since = now, time.Now()
			}
		}
		end(fmt.Errorf("it came no further for %s", patience))
	})
	return ctx, func() {
		end(context.Canceled)
		watching.Wait()
	}
}

// settledAfter is how long a mirror must copy without a lag to be one that does not halt.
const settledAfter = 3 * time.Second

// awaitHalt waits until the running Copier has halted.
func (c *Copier) awaitHalt(ctx context.Context, halted <-chan struct{}) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s := c.Status()
		switch {
		case s.State == Standby:
			return fmt.Errorf("%s is active for store %s: ask that one", s.Active, c.name)
		case s.State == Copying && time.Since(s.Since) > settledAfter && s.LagSeconds < settledAfter.Seconds():
			return errors.New("the mirror has not halted, there is no gap")
		}
		select {
		case <-halted:
			return nil
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the mirror has not halted, and nothing was changed: %w: %s", tooLate(ctx), c.waitsFor())
		}
	}
}

// look reads the checkpoint, as somebody who does not copy.
func (c *Copier) look(ctx context.Context) (err error) {
	info, err := c.readStore(ctx)
	if err != nil {
		return err
	}
	k, err := dial(c.config, "", c.dialer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	saved, err := k.savedOf(ctx, info.id)
	if err != nil {
		return err
	}
	c.board.saved(*saved.checkpoint, time.UnixMicro(saved.checkpoint.WrittenAt))
	return nil
}

// savedOf is what a store's checkpoint topic says, for whoever does not copy. The error wraps
// ErrCheckpointLost where there is no checkpoint.
func (k *kafka) savedOf(ctx context.Context, storeID string) (saved savedState, err error) {
	topic := checkpointTopic(storeID)
	all, err := k.describe(topic)
	if err != nil {
		return saved, err
	}
	if _, exists := all[topic]; exists {
		saved, _, err = readCheckpoint(ctx, k, topic)
	}
	if err == nil && saved.checkpoint == nil {
		err = haltf(ReasonCheckpoint, ErrCheckpointLost, "start canald first, or name the configuration of the canald that copies it", "%s holds none", topic)
	}
	return saved, err
}
