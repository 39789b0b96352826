package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// awayError is a store that could not be asked. Whoever meets it leaves the group, so that
// a canald that reaches the store is the active one.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// askStore reads the store's identity and settings.
func (c *Copier) askStore(ctx context.Context) (storeInfo, error) {
	info, err := c.readStore(ctx)
	if err != nil {
		return info, &awayError{err}
	}
	c.lag.expires(info.expire)
	c.lag.surveyed(info.survey)
	c.shards.Store(int32(info.shards))
	return info, nil
}

// attend is a member of the store's group, and copies whenever it is this canald's turn. It
// returns when ctx ends, when the store cannot be asked, or with a Halt.
func (c *Copier) attend(ctx context.Context, pause *backoff) error {
	info, err := c.askStore(ctx)
	if err != nil {
		c.metrics.errors.WithLabelValues("start").Inc()
		return err
	}
	g, err := newGroup(c.config, info.id, c.session, c.dialer)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	m := newMember(g)
	left := make(chan error, 1)
	go func() { left <- m.run(ctx) }()
	err = c.turns(ctx, m, pause)
	c.board.takes("", time.Now())
	leave()
	<-left // what it refused is in err already
	return c.refusal(err)
}

// turns takes one turn after another.
func (c *Copier) turns(ctx context.Context, m *member, pause *backoff) error {
	for {
		turn, end, err := m.turn(ctx, func(s seat, trouble error) { c.standing(m.group.topic, s, trouble) })
		if err != nil {
			return err
		}
		c.board.takes(c.config.ID, time.Now())
		err = c.take(turn, m, pause)
		over := context.Cause(turn)
		end()
		switch {
		case errors.Is(over, errSeatLost), errors.Is(err, errStanding):
			c.deposed(err)
		case err != nil:
			return err
		}
	}
}

// take copies until the turn is over, the store cannot be asked, or the mirror halts.
func (c *Copier) take(turn context.Context, m *member, pause *backoff) error {
	for {
		copied, err := c.run(turn, m)
		if copied {
			*pause = backoff{}
		}
		var away *awayError
		var h *Halt
		if turn.Err() != nil || errors.Is(err, errStanding) || errors.As(err, &away) || errors.As(err, &h) {
			return err
		}
		if errors.Is(err, errChanging) {
			continue
		}
		c.interrupted(err)
		if !pause.wait(turn) {
			return turn.Err()
		}
	}
}

// deposed says why this canald no longer copies.
func (c *Copier) deposed(err error) {
	if !errors.Is(err, errFenced) {
		err = errSeatLost
	}
	if c.board.waits(err, nil, time.Now()) {
		c.metrics.setWaiting("")
	}
	c.log.Warn("mirror no longer active here", "err", err)
}

// standing notes what is known while it is not this canald's turn; topic is that of checkpoints.
func (c *Copier) standing(topic string, s seat, trouble error) {
	now := time.Now()
	switch {
	case trouble != nil:
		c.interrupted(c.explained(fmt.Errorf("not in the group of this store's canalds: %w", trouble), topic, nil))
	case s.generation > 0 && !s.active && s.holder != "":
		c.lag.reset() // the active one's is what counts
		c.adopt().finish(fmt.Errorf("%s is active for the store: ask that one", s.holder))
		if c.board.stands(s.holder, now) {
			c.metrics.setWaiting("")
			c.log.Info("mirror stands by", "active", s.holder)
		}
	}
}
