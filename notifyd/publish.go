package notifyd

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

// forwardedHeader marks publishes that a broker without a shard passes on, so that they are
// not passed on again.
const forwardedHeader = "Notify-Forwarded-By"

func contentSize(m *message.Message) int {
	n := len(m.Body)
	for k, v := range m.Headers {
		n += len(k) + len(v)
	}
	return n
}

// Publish implements the API.
func (b *Broker) Publish(ctx context.Context, req *connect.Request[notifyv1.PublishRequest]) (*connect.Response[notifyv1.PublishResponse], error) {
	began := time.Now()
	p, err := b.accept(ctx, req.Msg, nil)
	if err != nil {
		return nil, rpcError(b.refused(req.Msg, err))
	}
	if !b.memory.TryAcquire(int64(p.size)) {
		return nil, rpcError(b.refused(req.Msg, overloaded(int64(b.cfg.PublishMemory))))
	}
	if _, err := b.submit(ctx, p, isPassedOn(req.Header())); err != nil {
		return nil, rpcError(b.refused(req.Msg, err))
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.err != nil {
		return nil, rpcError(b.refused(req.Msg, p.err))
	}
	b.metrics.publishDuration.WithLabelValues("plain").Observe(time.Since(began).Seconds())
	return connect.NewResponse(&notifyv1.PublishResponse{Id: p.id.String(), Duplicate: p.dup, InMemory: p.unstored}), nil
}

func overloaded(limit int64) *apiError {
	return newError(notifyv1.Reason_REASON_OVERLOADED, "overloaded: %d bytes of messages wait for the store; try again", limit)
}

// refused counts a publish that was not stored and passes its error on.
func (b *Broker) refused(req *notifyv1.PublishRequest, err error) error {
	topic := req.GetMessage().GetTopic()
	if _, ok := b.declared.load().Topics[topic]; !ok {
		topic = ""
	}
	reason := "internal"
	switch asAPIError(err).detail.Reason {
	case notifyv1.Reason_REASON_INVALID:
		reason = "invalid"
	case notifyv1.Reason_REASON_TOO_LARGE:
		reason = "too_large"
	case notifyv1.Reason_REASON_UNKNOWN_TOPIC:
		reason = "unknown_topic"
	case notifyv1.Reason_REASON_OVERLOADED:
		reason = "overloaded"
	case notifyv1.Reason_REASON_CONFLICT:
		reason = "duplicate_conflict"
	case notifyv1.Reason_REASON_RESULT_UNKNOWN:
		reason = "result_unknown"
	case notifyv1.Reason_REASON_STORE_AWAY:
		reason = "store_away"
	case notifyv1.Reason_REASON_UNAVAILABLE, notifyv1.Reason_REASON_BEHIND_FAILURE:
		reason = "unavailable"
	}
	b.metrics.rejected.WithLabelValues(topic, reason).Inc()
	return err
}

// accept checks a request and makes a publish of it.
func (b *Broker) accept(ctx context.Context, req *notifyv1.PublishRequest, l *line) (*publish, error) {
	m, err := fromRequest(req)
	if err != nil {
		return nil, err
	}
	if err := m.Validate(int(b.cfg.MaxBodyBytes)); err != nil {
		return nil, err
	}
	topic, err := b.findTopic(ctx, m.Topic)
	if err != nil {
		return nil, err
	}
	m.Mirrored = topic.Mirrored
	if inMemory(topic) {
		if err := checkKey(req, m); err != nil {
			return nil, err
		}
	}
	grace := int64(0)
	if req.GetIdempotencyKey() != "" {
		grace = time.Duration(b.cfg.DedupWindow).Microseconds()
	}
	if err := schedule(m, req.GetMessage(), b.main.clock.now(), grace); err != nil {
		return nil, err
	}
	if err := b.mirrorable(m); err != nil {
		return nil, err
	}
	p := newPublish(store.Item{Msg: m, IdempotencyKey: req.GetIdempotencyKey()}, l)
	if p.unstored = inMemory(topic); p.unstored && m.DeliverAt != 0 {
		return nil, checkUnstored(m.Topic, "delayed messages")
	}
	return p, nil
}

// mirrorable refuses a message that its topic in the mirror would refuse.
func (c *core) mirrorable(m *message.Message) error {
	if c.fits == nil || !m.Mirrored {
		return nil
	}
	if size, limit, ok := c.fits(m); !ok {
		return &message.FieldError{Field: "message", Rule: "too many bytes for its topic in Kafka (max.message.bytes)", Size: size, Limit: limit}
	}
	return nil
}

func fromRequest(req *notifyv1.PublishRequest) (*message.Message, error) {
	in := req.GetMessage()
	if in == nil {
		return nil, &message.FieldError{Field: "message", Rule: "missing"}
	}
	if n := len(req.GetIdempotencyKey()); n > message.MaxKeyBytes {
		return nil, &message.FieldError{Field: "idempotency_key", Rule: "too many bytes", Size: n, Limit: message.MaxKeyBytes}
	}
	m := &message.Message{Topic: in.GetTopic(), Key: in.GetKey(), Headers: in.GetHeaders(), Body: in.GetBody()}
	if text := in.GetText(); text != "" {
		if len(m.Body) > 0 {
			return nil, &message.FieldError{Field: "text", Rule: "give body or text, not both"}
		}
		m.Body = []byte(text)
	}
	var err error
	if in.GetId() == "" {
		m.ID, err = uuid.NewV7()
	} else if m.ID, err = uuid.Parse(in.GetId()); err != nil {
		return nil, &message.FieldError{Field: "id", Rule: "not a UUID; leave it empty and the broker makes one"}
	}
	return m, err
}

// findTopic finds a declared topic, declaring it first when the broker is configured to.
func (b *Broker) findTopic(ctx context.Context, name string) (store.Topic, error) {
	if t, ok := b.declared.load().Topics[name]; ok {
		return t, nil
	}
	if err := b.main.readRegistry(ctx); err != nil {
		return store.Topic{}, err
	}
	if t, ok := b.declared.load().Topics[name]; ok {
		return t, nil
	}
	if !b.cfg.AutoCreateTopics {
		return store.Topic{}, unknownTopic(name)
	}
	if err := b.main.st.CreateTopic(ctx, store.Topic{Name: name, Mirrored: true}); err != nil && !errors.Is(err, store.ErrExists) {
		return store.Topic{}, err
	}
	if err := b.main.readRegistry(ctx); err != nil {
		return store.Topic{}, err
	}
	if t, ok := b.declared.load().Topics[name]; ok {
		return t, nil
	}
	return store.Topic{}, unknownTopic(name)
}

// submit hands an accepted publish, whose memory is acquired, to a sink, which it returns. After an error the
// memory is given back; without one the publish will be answered.
func (b *Broker) submit(ctx context.Context, p *publish, forwarded bool) (sink, error) {
	if p.unstored {
		b.memory.Release(int64(p.size))
		b.inMemory.take(p)
		return nil, nil
	}
	r, err := b.router.enter(ctx)
	if err != nil {
		b.memory.Release(int64(p.size))
		return nil, err
	}
	p.release = func() {
		r.release()
		b.memory.Release(int64(p.size))
	}
	var topic, key string
	if m := p.item.Msg; m != nil {
		topic, key = m.Topic, m.Key
	}
	s := r.pick(topic, key)
	_, forwards := s.(*forwarder)
	switch {
	case s == nil || forwards && forwarded:
		p.release()
		return nil, newError(notifyv1.Reason_REASON_UNAVAILABLE, "this broker has no shard: try another one, or again")
	case !s.put(p):
		p.release()
		return nil, shardMoved()
	}
	return s, nil
}
