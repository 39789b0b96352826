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
// as a canald does, until it halts. The error wraps ErrChange; ctx bounds all of it, and must allow for Session and for
// what the brokers wait for a new group's members.
func ChangeAlone(ctx context.Context, config Config, store string, deps Deps, what Change) (Outcome, error) {
	c, err := New(config, store, deps)
	if err != nil {
		return Outcome{}, err
	}
	return c.changeAlone(ctx, what)
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
func (c *Copier) changeAlone(ctx context.Context, what Change) (Outcome, error) {
	var err error
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
	running, stop := context.WithCancel(ctx)
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
	running, stop := context.WithCancel(ctx)
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
			return fmt.Errorf("the mirror is %s, and has not halted in time: %s", s.State, s.LastError)
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
