package notifyd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
	"notifymirror/notifyd/webhook"
)

// SetWebhook implements the API.
func (b *Broker) SetWebhook(ctx context.Context, req *connect.Request[notifyv1.SetWebhookRequest]) (*connect.Response[notifyv1.SetWebhookResponse], error) {
	r := req.Msg
	secret, made, err := secretOf(r.GetSecret())
	if err != nil {
		return nil, rpcError(err)
	}
	e, err := b.changeWebhook(ctx, r.GetGroup(), func(now int64, e *store.Endpoint) error {
		if e.CreatedAt != 0 && r.GetSecret() != "" {
			return &message.FieldError{Field: "secret", Rule: "the webhook has one: notify webhook rotate " + r.GetGroup() + " gives it another"}
		}
		if made = e.CreatedAt == 0 && r.GetSecret() == ""; e.CreatedAt == 0 {
			if err := b.webhooks.addSecret(e, secret, now); err != nil {
				return err
			}
		}
		if err := b.webhooks.mayDial(r.GetUrl()); err != nil {
			return err
		}
		e.URL = cmp.Or(r.GetUrl(), e.URL)
		e.Concurrency = cmp.Or(int(r.GetConcurrency()), e.Concurrency, webhook.DefaultConcurrency)
		e.Timeout = cmp.Or(int64(r.GetTimeoutMs())*1000, e.Timeout, webhook.DefaultTimeout.Microseconds())
		return checkWebhook(e)
	})
	if err != nil {
		return nil, rpcError(err)
	}
	res := &notifyv1.SetWebhookResponse{Webhook: e}
	if made {
		res.Secret = secret.Text()
	}
	return connect.NewResponse(res), nil
}

// secretOf reads a secret, or makes one when none is given.
func secretOf(text string) (s webhook.Secret, made bool, err error) {
	if text == "" {
		return webhook.NewSecret(), true, nil
	}
	if s, err = webhook.ParseSecret(text); err != nil {
		return s, false, &message.FieldError{Field: "secret", Rule: err.Error()}
	}
	return s, false, nil
}

// mayDial refuses a URL whose host is an address that is never dialled.
func (w *webhooks) mayDial(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return nil // checkWebhook says so
	}
	if err := w.guard.CheckHost(u.Hostname()); err != nil {
		return &message.FieldError{Field: "url", Rule: err.Error()}
	}
	return nil
}

func checkWebhook(e *store.Endpoint) error {
	for _, c := range []struct {
		field string
		err   error
	}{
		{"url", webhook.CheckURL(e.URL)},
		{"concurrency", webhook.CheckConcurrency(e.Concurrency)},
		{"timeout", webhook.CheckTimeout(time.Duration(e.Timeout) * time.Microsecond)},
	} {
		if c.err != nil {
			return &message.FieldError{Field: c.field, Rule: c.err.Error()}
		}
	}
	return nil
}

// changeWebhook changes an endpoint, seals its secrets with the present key, and returns what
// is in force then.
func (b *Broker) changeWebhook(ctx context.Context, group string, change func(now int64, e *store.Endpoint) error) (*notifyv1.Webhook, error) {
	if err := message.ValidateGroup(group); err != nil {
		return nil, err
	}
	err := b.main.st.ChangeEndpoint(ctx, group, func(now int64, e *store.Endpoint) error {
		if err := change(now, e); err != nil {
			return err
		}
		return b.webhooks.reseal(e, now)
	})
	if err != nil {
		return nil, webhookError(group, err)
	}
	if err := b.main.readRegistry(ctx); err != nil {
		return nil, err
	}
	return b.webhookOf(b.declared.load(), group)
}

// there refuses an endpoint that does not exist yet.
func there(change func(now int64, e *store.Endpoint) error) func(int64, *store.Endpoint) error {
	return func(now int64, e *store.Endpoint) error {
		if e.CreatedAt == 0 {
			return store.ErrNoEndpoint
		}
		return change(now, e)
	}
}

func webhookError(group string, err error) error {
	switch {
	case errors.Is(err, store.ErrNoGroup):
		return unknownGroup(group)
	case errors.Is(err, store.ErrNoEndpoint):
		return newError(notifyv1.Reason_REASON_UNKNOWN_WEBHOOK, "group %q has no webhook: notify webhook set %s --url URL", group, group)
	}
	return err
}

// endpoint finds a group's endpoint in a version of the registry.
func (v *view) endpoint(group string) (store.Endpoint, error) {
	g, ok := v.Groups[group]
	if !ok {
		return store.Endpoint{}, unknownGroup(group)
	}
	e, ok := v.Endpoints[g.ID]
	if !ok {
		return e, webhookError(group, store.ErrNoEndpoint)
	}
	return e, nil
}

func (b *Broker) webhookOf(v *view, group string) (*notifyv1.Webhook, error) {
	e, err := v.endpoint(group)
	if err != nil {
		return nil, err
	}
	inFlight, paused, problem := b.webhooks.state(e.GroupID)
	out := &notifyv1.Webhook{Group: group, Url: e.URL, Concurrency: uint32(e.Concurrency), TimeoutMs: uint32(e.Timeout / 1000),
		Disabled: e.Disabled, DisabledReason: e.Reason, DisabledAtUs: e.DisabledAt, CreatedAtUs: e.CreatedAt, ChangedAtUs: e.ChangedAt,
		Problem: problem, InFlight: uint32(inFlight)}
	if !paused.IsZero() {
		out.PausedUntilUs = paused.UnixMicro()
	}
	for _, s := range e.Secrets {
		out.Secrets = append(out.Secrets, &notifyv1.WebhookSecret{KeyId: s.Key, CreatedAtUs: s.CreatedAt, UntilUs: s.Until})
	}
	return out, nil
}

// ListWebhooks implements the API.
func (b *Broker) ListWebhooks(ctx context.Context, req *connect.Request[notifyv1.ListWebhooksRequest]) (*connect.Response[notifyv1.ListWebhooksResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for id := range maps.Keys(v.Endpoints) {
		all = append(all, v.GroupNames[id])
	}
	slices.Sort(all)
	names, next := page(all, func(s string) string { return s }, req.Msg.GetAfter(), req.Msg.GetLimit())
	res := &notifyv1.ListWebhooksResponse{Next: next}
	for _, n := range names {
		w, err := b.webhookOf(v, n)
		if err != nil {
			return nil, rpcError(err)
		}
		res.Webhooks = append(res.Webhooks, w)
	}
	return connect.NewResponse(res), nil
}

// GetWebhook implements the API.
func (b *Broker) GetWebhook(ctx context.Context, req *connect.Request[notifyv1.GetWebhookRequest]) (*connect.Response[notifyv1.GetWebhookResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	w, err := b.webhookOf(v, req.Msg.GetGroup())
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.GetWebhookResponse{Webhook: w}), nil
}

// EnableWebhook implements the API.
func (b *Broker) EnableWebhook(ctx context.Context, req *connect.Request[notifyv1.EnableWebhookRequest]) (*connect.Response[notifyv1.EnableWebhookResponse], error) {
	w, err := b.changeWebhook(ctx, req.Msg.GetGroup(), there(func(_ int64, e *store.Endpoint) error {
		e.Disabled, e.Reason, e.DisabledAt = false, "", 0
		return nil
	}))
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.EnableWebhookResponse{Webhook: w}), nil
}

// DisableWebhook implements the API.
func (b *Broker) DisableWebhook(ctx context.Context, req *connect.Request[notifyv1.DisableWebhookRequest]) (*connect.Response[notifyv1.DisableWebhookResponse], error) {
	reason := req.Msg.GetReason()
	if n := len(reason); n > maxNackReason {
		return nil, rpcError(&message.FieldError{Field: "reason", Rule: "too many bytes", Size: n, Limit: maxNackReason})
	}
	w, err := b.changeWebhook(ctx, req.Msg.GetGroup(), there(func(now int64, e *store.Endpoint) error {
		e.Disabled, e.Reason, e.DisabledAt = true, cmp.Or(reason, "by hand"), now
		return nil
	}))
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&notifyv1.DisableWebhookResponse{Webhook: w}), nil
}

// errChanged ends the change of an endpoint that is not what it was.
var errChanged = errors.New("the webhook was changed meanwhile")

// disableGone disables an endpoint whose receiver wants nothing any more, unless somebody has changed it.
func (b *Broker) disableGone(ctx context.Context, t *target) error {
	err := b.main.st.ChangeEndpoint(ctx, t.group, func(now int64, e *store.Endpoint) error {
		if e.ChangedAt != t.ChangedAt {
			return errChanged
		}
		e.Disabled, e.Reason, e.DisabledAt = true, "the receiver answered 410 Gone", now
		return nil
	})
	if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, store.ErrNoGroup) {
		return err
	}
	return b.main.readRegistry(ctx)
}

// RemoveWebhook implements the API.
func (b *Broker) RemoveWebhook(ctx context.Context, req *connect.Request[notifyv1.RemoveWebhookRequest]) (*connect.Response[notifyv1.RemoveWebhookResponse], error) {
	if err := b.main.st.RemoveEndpoint(ctx, req.Msg.GetGroup()); err != nil {
		return nil, rpcError(webhookError(req.Msg.GetGroup(), err))
	}
	if _, err := b.fresh(ctx); err != nil {
		return nil, err
	}
	return connect.NewResponse(&notifyv1.RemoveWebhookResponse{}), nil
}

// testTopic is the topic and type of a test event.
const testTopic = "notify.webhook.test"

// TestWebhook implements the API.
func (b *Broker) TestWebhook(ctx context.Context, req *connect.Request[notifyv1.TestWebhookRequest]) (*connect.Response[notifyv1.TestWebhookResponse], error) {
	v, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	group := req.Msg.GetGroup()
	e, err := v.endpoint(group)
	if err != nil {
		return nil, rpcError(err)
	}
	t, err := b.webhooks.aim(group, e)
	if err != nil {
		return nil, rpcError(keyProblem(err))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, rpcError(err)
	}
	now := b.main.clock.now()
	body, err := json.Marshal(map[string]any{"type": testTopic, "group": group, "sent_at_us": now})
	if err != nil {
		return nil, rpcError(err)
	}
	s := b.webhooks.send(ctx, t, webhook.Event{ID: id.String(), Topic: testTopic, Group: group, BornAt: time.UnixMicro(now), Attempt: 1,
		Headers: map[string]string{"content-type": "application/json"}}, body)
	return connect.NewResponse(&notifyv1.TestWebhookResponse{Id: id.String(), Status: uint32(s.status), Acknowledged: s.Acked,
		Words: s.words(), DurationMs: uint32(s.took.Milliseconds())}), nil
}

// words tell what came back and what it would mean for a message.
func (s sent) words() string {
	var b strings.Builder
	if s.status == 0 {
		fmt.Fprintf(&b, "no answer: %s; ", s.Reason)
	} else {
		fmt.Fprintf(&b, "status %d after %s; ", s.status, s.took.Round(time.Millisecond))
	}
	switch {
	case s.Acked:
		b.WriteString("a message would be acknowledged")
	case s.Gone:
		b.WriteString("a message would wait, and the webhook would be disabled")
	case s.Pause > 0:
		fmt.Fprintf(&b, "a message would be sent again after %s, and nothing before", s.Pause)
	default:
		b.WriteString("a message would be sent again after a pause")
	}
	if s.status >= 300 && s.status < 400 {
		b.WriteString("; redirects are not followed")
	}
	return b.String()
}
