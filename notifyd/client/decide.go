package client

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// pendingDecision waits to be brought to a broker by Run.
type pendingDecision struct {
	half     Half
	decision Decision
	done     func(error)
}

// CommitAsync queues a commit and returns; Run brings it to a broker, and tries
// again as Commit does. It blocks while Window decisions wait. Once it has returned
// nil, done, unless nil, is called exactly once with what Commit would return; it
// must be short and must not call the producer. After Close it returns ErrClosed.
//
// A decision that is lost with the process is no harm: check-back resolves the half.
func (p *TransactionalProducer) CommitAsync(ctx context.Context, h Half, done func(error)) error {
	return p.enqueue(ctx, pendingDecision{half: h, decision: Commit, done: done})
}

// RollbackAsync queues a rollback; its rules are those of CommitAsync.
func (p *TransactionalProducer) RollbackAsync(ctx context.Context, h Half, done func(error)) error {
	return p.enqueue(ctx, pendingDecision{half: h, decision: Rollback, done: done})
}

func (p *TransactionalProducer) enqueue(ctx context.Context, d pendingDecision) error {
	if err := p.room.Acquire(ctx, 1); err != nil {
		return err
	}
	p.mu.Lock()
	refuse := p.closed || p.ended
	if !refuse {
		p.queue = append(p.queue, d)
	}
	p.mu.Unlock()
	if refuse {
		p.room.Release(1)
		return ErrClosed
	}
	poke(p.work)
	return nil
}

// Close says that no more decisions will be queued. Run returns once all are taken.
func (p *TransactionalProducer) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	poke(p.work)
}

// Run brings queued decisions to brokers until Close was called and each has its
// answer (nil), or until ctx ends: what is then not decided is left to check-back,
// and Run returns ErrUndecided if there is any. Call it once.
func (p *TransactionalProducer) Run(ctx context.Context) error {
	var deciding errgroup.Group
	deciding.SetLimit(p.cfg.Concurrency)
	for p.waitForWork(ctx) {
		p.mu.Lock()
		batch := p.queue
		p.queue = nil
		p.mu.Unlock()
		for _, d := range batch {
			deciding.Go(func() error { return p.settle(ctx, d) })
		}
	}
	err := deciding.Wait()
	p.mu.Lock()
	left := slices.Clip(p.queue)
	p.queue, p.ended = nil, true
	p.mu.Unlock()
	for _, d := range left {
		err = p.settle(ctx, d) // at once: ctx has ended
	}
	if ctx.Err() == nil {
		return nil
	}
	return err
}

// settle takes one decision and tells done. The error is what ctx left undecided.
func (p *TransactionalProducer) settle(ctx context.Context, d pendingDecision) error {
	err := ctx.Err()
	if err != nil {
		err = fmt.Errorf("%w: %s of %s: %w", ErrUndecided, d.decision, d.half.ID, err)
	} else {
		err = p.decide(ctx, d.half, d.decision)
	}
	if d.done != nil {
		d.done(err)
	}
	p.room.Release(1)
	if ctx.Err() == nil {
		return nil
	}
	return err
}

// waitForWork blocks until a decision waits. False: closed and none waits, or ctx ended.
func (p *TransactionalProducer) waitForWork(ctx context.Context) bool {
	for {
		p.mu.Lock()
		empty, closed := len(p.queue) == 0, p.closed
		p.mu.Unlock()
		if ctx.Err() != nil || empty && closed {
			return false
		}
		if !empty {
			return true
		}
		select {
		case <-p.work:
		case <-ctx.Done():
		}
	}
}
