package notifyd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
	"notifymirror/notifyd/webhook"
)

const (
	// defaultKeep is how long a secret signs beside its successor, and maxKeep the longest.
	defaultKeep = 24 * time.Hour
	maxKeep     = 30 * 24 * time.Hour
)

// sealOwner is what the secrets of a group are bound to.
func sealOwner(group int32) string { return fmt.Sprintf("endpoint of group %d", group) }

// addSecret puts a new secret first.
func (w *webhooks) addSecret(e *store.Endpoint, s webhook.Secret, now int64) error {
	key, sealed, err := w.ring.Seal(s, sealOwner(e.GroupID))
	if err != nil {
		return keyProblem(err)
	}
	e.Secrets = append([]store.SealedSecret{{Key: key, Sealed: sealed, CreatedAt: now}}, e.Secrets...)
	return nil
}

// reseal forgets secrets whose time is over and seals the others with the present key. One that
// cannot be opened here stays as it is: another broker may have its key.
func (w *webhooks) reseal(e *store.Endpoint, now int64) error {
	e.Secrets = inForce(e.Secrets, now)
	for i := range e.Secrets {
		s := &e.Secrets[i]
		secret, err := w.ring.Open(s.Key, s.Sealed, sealOwner(e.GroupID))
		if err != nil {
			continue
		}
		if s.Key, s.Sealed, err = w.ring.Seal(secret, sealOwner(e.GroupID)); err != nil {
			return keyProblem(err)
		}
	}
	return nil
}

func inForce(all []store.SealedSecret, now int64) (kept []store.SealedSecret) {
	for _, s := range all {
		if s.Until == 0 || now < s.Until {
			kept = append(kept, s)
		}
	}
	return kept
}

// keyProblem says how a key that is missing is mended.
func keyProblem(err error) error {
	if !errors.Is(err, webhook.ErrNoKey) {
		return err
	}
	e := newError(notifyv1.Reason_REASON_INVALID,
		"%s: a secret is only kept sealed; put secret_keys: [\"ID:KEY\"] into the configuration of every broker, openssl rand -base64 32 makes a KEY", err)
	e.detail.Field = "secret_keys"
	return e
}

// RotateWebhook implements the API.
func (b *Broker) RotateWebhook(ctx context.Context, req *connect.Request[notifyv1.RotateWebhookRequest]) (*connect.Response[notifyv1.RotateWebhookResponse], error) {
	r := req.Msg
	secret, made, err := secretOf(r.GetSecret())
	if err != nil {
		return nil, rpcError(err)
	}
	keep := defaultKeep
	if r.KeepMs != nil {
		keep = time.Duration(r.GetKeepMs()) * time.Millisecond
	}
	if keep > maxKeep {
		return nil, rpcError(&message.FieldError{Field: "keep", Rule: fmt.Sprintf("%s is above %s", keep, maxKeep)})
	}
	w, err := b.changeWebhook(ctx, r.GetGroup(), there(func(now int64, e *store.Endpoint) error {
		e.Secrets = inForce(e.Secrets, now)
		if len(e.Secrets) > 1 {
			if last := e.Secrets[len(e.Secrets)-1].Until; !r.GetForce() {
				return newError(notifyv1.Reason_REASON_CONFLICT, "two secrets sign until %s: wait until then, or use force (notify webhook rotate --force), and the older one ends at once",
					time.UnixMicro(last).UTC().Format(time.RFC3339))
			}
			e.Secrets = e.Secrets[:1]
		}
		for i := range e.Secrets {
			e.Secrets[i].Until = now + keep.Microseconds()
		}
		return b.webhooks.addSecret(e, secret, now)
	}))
	if err != nil {
		return nil, rpcError(err)
	}
	res := &notifyv1.RotateWebhookResponse{Webhook: w}
	if made {
		res.Secret = secret.Text()
	}
	return connect.NewResponse(res), nil
}
