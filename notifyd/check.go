package notifyd

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

const (
	// checkPeriod is how often a shard's owner looks for halves to ask about, and checkMost how many it
	// takes each time from one producer group: 100 checks a second from each shard and group at most. A
	// check costs about 0.1 ms of a processor, a third of it the producer's.
	checkPeriod = 500 * time.Millisecond
	checkMost   = 50
	// checkShare makes checks give way: the next look waits this many times as long as the last one
	// took, up to checkPatience, so that a store that is busy is asked for fewer.
	checkShare    = 50
	checkPatience = 10 * time.Second
	// callbackAgain is when a callback is tried again for which its host had no room.
	callbackAgain = time.Second
)

// checkPause is the time between two looks of which the first took a while.
func checkPause(took time.Duration) time.Duration {
	return min(max(checkPeriod, checkShare*took), checkPatience)
}

// checkLoop asks about halves of this shard that nobody has decided. It reads only those of
// groups that have an instance here, and those with a callback: a group that is away costs
// nothing and loses no check.
func (o *owner) checkLoop(ctx context.Context) error {
	t := time.NewTimer(o.turn(checkPeriod))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.releasing:
			return nil
		case <-t.C:
		}
		if !o.leased() {
			t.Reset(checkPeriod)
			continue
		}
		began := time.Now()
		err := o.check(ctx)
		t.Reset(checkPause(time.Since(began)))
		switch {
		case err == nil:
			o.checkTrouble.off()
		case ctx.Err() == nil:
			o.metrics.storeErrors.WithLabelValues(o.st.Name, "check").Inc()
			o.checkTrouble.on(func() {
				o.log.Warn("checks of halves failed and are tried again", "store", o.st.Name, "shard", o.no, "err", err)
			})
		}
	}
}

func (o *owner) check(ctx context.Context) error {
	limits := store.Checks{Budget: o.cfg.CheckBudget, Delay: func(h store.Half) int64 { return o.checkDelay(h.Msg.Topic).asked(h.Checks) }}
	for _, group := range o.producers.present() {
		most := min(checkMost, o.producers.room(group))
		if most == 0 {
			continue
		}
		halves, err := o.st.ClaimChecks(ctx, o.no, group, o.clock.now(), most, limits)
		if err != nil {
			return err
		}
		for _, h := range halves {
			if !o.producers.ask(group, o.question(h)) {
				o.notAsked(ctx, o.no, h.Msg.ID, h.Msg.Topic, o.seldomer(h.Msg.Topic, h.Msg.BornAt), "every instance of the producer group that is attached has left, or reads no checks")
			}
		}
	}
	most := o.callbacks.take(checkMost)
	if most == 0 {
		return nil
	}
	halves, err := o.st.ClaimChecks(ctx, o.no, store.AskedByURL, o.clock.now(), most, limits)
	o.callbacks.give(most - len(halves))
	if err != nil {
		return err
	}
	for _, h := range halves {
		name := host(h.CheckURL)
		if cause, silent := o.callbacks.hosts.enter(name); cause != "" {
			o.callbacks.give(1)
			wait := callbackAgain.Microseconds()
			if silent {
				wait = o.seldomer(h.Msg.Topic, h.Msg.BornAt)
			}
			o.notAsked(ctx, o.no, h.Msg.ID, h.Msg.Topic, wait, cause)
			continue
		}
		o.callbacks.start(ctx, func(ctx context.Context) { o.callbacks.hosts.leave(name, o.callBack(ctx, h)) })
	}
	return nil
}

func (o *owner) question(h store.Half) *notifyv1.Check {
	return &notifyv1.Check{Handle: o.handle(h.Msg.ID), Number: uint32(h.Checks), Message: messageProto(h.Msg)}
}

func messageProto(m *message.Message) *notifyv1.Message {
	return &notifyv1.Message{Id: m.ID.String(), Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body,
		BornAtUs: m.BornAt, DeliverAtUs: m.DeliverAt, ExpiresAtUs: m.ExpiresAt}
}

// seldomer is how long the next check waits of a half that cannot be asked about, microseconds: the longer the older
// it is, so that it costs little.
func (s *side) seldomer(topic string, bornAt int64) int64 {
	return s.checkDelay(topic).notAsked(s.clock.now() - bornAt)
}

// notAsked takes a check back that was not asked; the next one waits for so many microseconds. It is not counted
// against the budget.
func (s *side) notAsked(ctx context.Context, no int, half uuid.UUID, topic string, wait int64, cause string) {
	s.metrics.checks.WithLabelValues(topic, "no_producer").Inc()
	if err := s.st.CheckNotAsked(ctx, no, half, s.clock.now()+wait, cause); err != nil && ctx.Err() == nil {
		s.log.Warn("a check that was not asked stays counted", "store", s.st.Name, "shard", no, "half", half, "err", err)
	}
}

// checkFailed notes why a check that was asked gave no answer.
func (o *owner) checkFailed(ctx context.Context, h store.Half, cause error) {
	o.metrics.checks.WithLabelValues(h.Msg.Topic, "error").Inc()
	if err := o.st.CheckFailed(ctx, o.no, h.Msg.ID, cause.Error()); err != nil && ctx.Err() == nil {
		o.log.Warn("why a check failed is not noted", "store", o.st.Name, "shard", o.no, "half", h.Msg.ID, "err", err)
	}
}

// callBack asks the half's URL, and reports whether there was no answer in time.
func (o *owner) callBack(ctx context.Context, h store.Half) (silent bool) {
	decision, asked, err := o.callbacks.ask(ctx, h)
	silent = errors.Is(err, errSilent)
	switch {
	case ctx.Err() != nil:
		return silent
	case !asked:
		o.notAsked(ctx, o.no, h.Msg.ID, h.Msg.Topic, o.seldomer(h.Msg.Topic, h.Msg.BornAt), err.Error())
	case err != nil:
		o.checkFailed(ctx, h, err)
	}
	if err != nil {
		o.log.Debug("callback gave no decision", "half", h.Msg.ID, "url", h.CheckURL, "err", err)
		return silent
	}
	o.metrics.checks.WithLabelValues(h.Msg.Topic, decisionLabel(decision)).Inc()
	if decision == store.Undecided {
		return false
	}
	if err := o.decided(ctx, handle{store: o.storeID, shard: o.no, id: h.Msg.ID}, h.Group, decision); err != nil {
		o.log.Debug("decision of a callback not taken", "half", h.Msg.ID, "err", err)
	}
	return false
}

func decisionLabel(d store.Decision) string {
	if d == store.Undecided {
		return "unknown"
	}
	return d.String()
}
