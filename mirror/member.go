package mirror

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Session is how long a canald may be silent before the group gives its seat away.
const Session = 6 * time.Second

const (
	// beatEvery is the time between two heartbeats: a standby hears that much later, at
	// most, that it is wanted.
	beatEvery = 500 * time.Millisecond
	// leaveLimit is how long a planned stop may take to tell the group.
	leaveLimit = time.Second
	// retryEvery is the pause after a question that the group did not answer.
	retryEvery = 250 * time.Millisecond
)

// A member keeps a seat in the group of a store's canalds. One goroutine, run, speaks with
// the group; others ask for turns.
type member struct {
	group *group
	poke  chan struct{} // asks for a heartbeat now

	mu      sync.Mutex
	seat    seat
	trouble error         // the group does not answer; nil when it does
	ended   error         // why run has ended
	changed chan struct{} // closed and replaced when one of these was set
	revoke  context.CancelCauseFunc
}

func newMember(g *group) *member {
	return &member{group: g, poke: make(chan struct{}, 1), changed: make(chan struct{})}
}

// run keeps the seat until ctx ends, then gives it up. It ends early, with an error, when
// Kafka refuses what a change of configuration or rights mends.
func (m *member) run(ctx context.Context) error {
	cut := make(chan struct{})
	context.AfterFunc(ctx, func() { // a question that waits for others would delay a planned stop
		m.group.conns.Cut()
		close(cut)
	})
	again := false // everybody must join anew
	for ctx.Err() == nil {
		err := m.ask(again)
		again = err != nil && !forgotten(err) && (again || errors.Is(err, sarama.ErrRebalanceInProgress))
		if refused(err) {
			m.end(err)
			m.group.leave(leaveLimit)
			return err
		}
		m.rest(ctx, err)
	}
	m.end(ctx.Err())
	<-cut
	m.group.leave(leaveLimit)
	return nil
}

// ask is one exchange with the group.
func (m *member) ask(again bool) error {
	m.mu.Lock()
	now := m.seat
	m.mu.Unlock()
	asked := time.Now()
	var err error
	if now.generation == 0 || again {
		now, err = m.group.join(now.claim())
	} else if err = m.group.beat(now.generation); err == nil {
		now = now.heard(asked)
	}
	switch {
	case err == nil:
		m.sit(now, nil)
	case forgotten(err):
		m.sit(outside, nil)
	case errors.Is(err, sarama.ErrRebalanceInProgress): // who is active stays so until all have joined
	default:
		m.mu.Lock()
		now = m.seat
		m.mu.Unlock()
		m.sit(now.after(time.Now(), 2*m.group.session), err)
	}
	return err
}

// rest waits until the next exchange is due.
func (m *member) rest(ctx context.Context, err error) {
	pause := beatEvery
	switch {
	case forgotten(err), errors.Is(err, sarama.ErrRebalanceInProgress):
		pause = 10 * time.Millisecond
	case err != nil:
		pause = retryEvery
	}
	timer := time.NewTimer(min(pause, m.group.session/3))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.poke:
	case <-ctx.Done():
	}
}

// forgotten tells that the group went on without the member.
func forgotten(err error) bool {
	return errors.Is(err, sarama.ErrUnknownMemberId) || errors.Is(err, sarama.ErrIllegalGeneration)
}

// refused tells what Kafka will go on refusing.
func refused(err error) bool {
	return errors.Is(err, sarama.ErrGroupAuthorizationFailed) || errors.Is(err, sarama.ErrInvalidSessionTimeout) ||
		errors.Is(err, sarama.ErrInconsistentGroupProtocol)
}

// sit takes a seat, and ends the turn of whom another seat was given.
func (m *member) sit(s seat, trouble error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seat, m.trouble = s, trouble
	if !s.active {
		m.tell(errSeatLost)
		return
	}
	m.tell(nil)
}

// end says why there are no more turns.
func (m *member) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = err
	m.tell(err)
}

// tell ends the turn for a cause, unless that is nil, and wakes all who wait; m.mu is held.
func (m *member) tell(cause error) {
	if cause != nil && m.revoke != nil {
		m.revoke(cause)
		m.revoke = nil
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// turn waits until this canald is the active one, and returns a context that ends when it
// is no more. While it waits it tells standing what it knows.
func (m *member) turn(ctx context.Context, standing func(s seat, trouble error)) (context.Context, context.CancelFunc, error) {
	for {
		m.mu.Lock()
		s, trouble, ended, changed := m.seat, m.trouble, m.ended, m.changed
		if ended == nil && s.active {
			turn, cancel := context.WithCancelCause(ctx)
			m.revoke = cancel
			m.mu.Unlock()
			return turn, func() { cancel(context.Canceled) }, nil
		}
		m.mu.Unlock()
		if ended != nil {
			return nil, nil, ended
		}
		standing(s, trouble)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// confirm returns nil once the group has said, in an exchange that began after the call,
// that this canald is the active one. Whoever was stopped between being given its turn and
// using it learns here that it is over.
func (m *member) confirm(ctx context.Context) error {
	asked := time.Now()
	select {
	case m.poke <- struct{}{}:
	default:
	}
	for {
		m.mu.Lock()
		s, trouble, ended, changed := m.seat, m.trouble, m.ended, m.changed
		m.mu.Unlock()
		switch {
		case ended != nil:
			return ended
		case !s.active:
			return errStanding
		case s.confirmed.After(asked):
			return nil
		case trouble != nil:
			return trouble
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
