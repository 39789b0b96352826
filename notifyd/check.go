package notifyd

import (
	"context"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

const (
	// checkPeriod is how often a shard's owner looks for halves to ask about, and checkMost how many it
	// takes each time from one producer group: 200 checks a second from each shard and group at most.
	checkPeriod = 500 * time.Millisecond
	checkMost   = 100
)

// checkLoop asks about halves of this shard that nobody has decided. It reads only those of
// groups that have an instance here, and those with a callback: a group that is away costs
// nothing and loses no check.
func (o *owner) checkLoop(ctx context.Context) error {
	t := time.NewTicker(checkPeriod)
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
			continue
		}
		err := o.check(ctx)
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
	limits := store.Checks{First: time.Duration(o.cfg.CheckAfter).Microseconds(), Max: time.Duration(o.cfg.CheckMax).Microseconds(), Budget: o.cfg.CheckBudget}
	for _, group := range o.producers.present() {
		halves, err := o.st.ClaimChecks(ctx, o.no, group, o.clock.now(), checkMost, limits)
		if err != nil {
			return err
		}
		for _, h := range halves {
			if !o.producers.ask(group, o.question(h)) {
				o.uncount(ctx, h)
			}
		}
	}
	free := o.callbacks.free()
	if free == 0 {
		return nil
	}
	halves, err := o.st.ClaimChecks(ctx, o.no, store.AskedByURL, o.clock.now(), min(free, checkMost), limits)
	if err != nil {
		return err
	}
	for _, h := range halves {
		o.callbacks.start(ctx, func(ctx context.Context) { o.callBack(ctx, h) })
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

// uncount takes a check back that was not asked.
func (o *owner) uncount(ctx context.Context, h store.Half) {
	o.metrics.checks.WithLabelValues(h.Msg.Topic, "no_producer").Inc()
	if err := o.st.UncountCheck(ctx, o.no, h.Msg.ID); err != nil && ctx.Err() == nil {
		o.log.Warn("a check that was not asked stays counted", "store", o.st.Name, "shard", o.no, "half", h.Msg.ID, "err", err)
	}
}

// callBack asks the half's URL.
func (o *owner) callBack(ctx context.Context, h store.Half) {
	decision, asked, err := o.callbacks.ask(ctx, h)
	switch {
	case ctx.Err() != nil:
		return
	case !asked:
		o.uncount(ctx, h)
	case err != nil:
		o.metrics.checks.WithLabelValues(h.Msg.Topic, "error").Inc()
	}
	if err != nil {
		o.log.Debug("callback gave no decision", "half", h.Msg.ID, "url", h.CheckURL, "err", err)
		return
	}
	o.metrics.checks.WithLabelValues(h.Msg.Topic, decisionLabel(decision)).Inc()
	if decision == store.Undecided {
		return
	}
	if err := o.decided(ctx, handle{store: o.storeID, shard: o.no, id: h.Msg.ID}, h.Group, decision); err != nil {
		o.log.Debug("decision of a callback not taken", "half", h.Msg.ID, "err", err)
	}
}

func decisionLabel(d store.Decision) string {
	if d == store.Undecided {
		return "unknown"
	}
	return d.String()
}
