package notifyd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/store"
)

const (
	// showPeerTimeout bounds a call of the broker that owns a message's shard.
	showPeerTimeout = 3 * time.Second
	// lifeTries is how often a message that is between memory and rows is looked at again.
	lifeTries = 3
)

// ShowMessage implements the API. A broker that was asked by another tells of its own shards only.
func (b *Broker) ShowMessage(ctx context.Context, req *connect.Request[notifyv1.ShowMessageRequest]) (*connect.Response[notifyv1.ShowMessageResponse], error) {
	id, err := uuid.Parse(req.Msg.GetId())
	if err != nil {
		return nil, rpcError(&message.FieldError{Field: "id", Rule: "not a UUID"})
	}
	asked := isPassedOn(req.Header())
	res := &notifyv1.ShowMessageResponse{}
	for _, k := range b.stores.all() {
		b.noteUnknown(res, "store "+k.st.Name, b.showStored(ctx, k, id, asked, res))
	}
	if asked {
		return connect.NewResponse(res), nil
	}
	for _, name := range b.cfg.outboxStores() {
		if b.stores.byName(name) == nil {
			b.noteUnknown(res, "store "+name, errors.New("it is away"))
		}
	}
	b.noteUnknown(res, "halves", b.showHalf(ctx, id, res))
	for _, k := range b.stores.all() {
		b.noteUnknown(res, "outbox of store "+k.st.Name, b.showOutbox(ctx, k, id, res))
	}
	b.noteUnknown(res, "idempotency keys", b.showDedup(ctx, id, res))
	if len(res.Stored) > 0 {
		res.Why = res.Stored[0].Why
	} else {
		res.Why = elsewhere(res)
	}
	return connect.NewResponse(res), nil
}

func (b *Broker) noteUnknown(res *notifyv1.ShowMessageResponse, what string, err error) {
	if err != nil {
		res.Unknown = append(res.Unknown, what+": "+err.Error())
	}
}

// showStored tells of the messages with the id in one store. hereOnly: of those in shards owned here.
func (b *Broker) showStored(ctx context.Context, k *keeper, id uuid.UUID, hereOnly bool, res *notifyv1.ShowMessageResponse) error {
	found, err := k.st.FindMessage(ctx, id)
	if err != nil {
		return err
	}
	for _, at := range found {
		o := k.owner(at.Shard)
		if o == nil && hereOnly {
			continue
		}
		stored, err := b.showPlace(ctx, k, o, at, id)
		if err != nil {
			return err
		}
		if stored != nil {
			res.Stored = append(res.Stored, stored)
		}
	}
	return nil
}

// showPlace tells of one message: by its owner o here, or else by the broker that owns the shard; when that
// does not answer, by rows alone. It is nil when the message has gone meanwhile.
func (b *Broker) showPlace(ctx context.Context, k *keeper, o *owner, at store.Place, id uuid.UUID) (*notifyv1.StoredMessage, error) {
	l := &life{id: id.String(), view: k.registry.load(), hooks: b.declared.load().Endpoints}
	if o != nil {
		l.owner = b.cfg.ID
		if err := l.readOf(ctx, o, at); err != nil {
			return nil, err
		}
	} else {
		var address string
		if l.owner, address = k.ownerOf(at.Shard); address != "" {
			if there := b.showThere(ctx, address, k, at, id); there != nil {
				return there, nil
			}
		}
		var err error
		if l.store, err = k.st.ReadLife(ctx, at); err != nil {
			return nil, err
		}
	}
	l.now = k.clock.now()
	if l.store.Stored.Msg == nil {
		return nil, nil
	}
	return l.proto(k, at), nil
}

// readOf reads what the owner has in memory, then the rows. A message that has neither is being settled, or
// was deleted: it is looked at again.
func (l *life) readOf(ctx context.Context, o *owner, at store.Place) (err error) {
	for range lifeTries {
		s := o.look(at.Pos)
		l.sight = &s
		l.store, err = o.st.ReadLife(ctx, at)
		if err != nil || l.store.Stored.Msg == nil {
			return err
		}
		s.lookAt(o, at.Pos, l.groups())
		if l.exchanged() || len(l.store.Pending) > 0 {
			break
		}
	}
	return nil
}

// ownerOf is the broker that owns a shard, as of the last look at the leases, and its address if it lives.
func (k *keeper) ownerOf(no int) (id, address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.leases {
		if l.Shard == no && !l.Free(k.clock.now()) {
			id = l.Owner
		}
	}
	for _, b := range k.live {
		if b.ID == id && id != k.self.ID {
			address = b.Address
		}
	}
	return id, address
}

// showThere asks the broker at an address about a message in a shard of its own; nil when it does not know.
func (b *Broker) showThere(ctx context.Context, address string, k *keeper, at store.Place, id uuid.UUID) *notifyv1.StoredMessage {
	ctx, cancel := context.WithTimeout(ctx, showPeerTimeout)
	defer cancel()
	req := connect.NewRequest(&notifyv1.ShowMessageRequest{Id: id.String()})
	req.Header().Set(forwardedHeader, b.cfg.ID)
	res, err := notifyv1connect.NewAdminClient(b.forward.http, "http://"+address, connect.WithGRPC()).ShowMessage(ctx, req)
	if err != nil {
		b.log.Warn("a broker did not tell of a message", "peer", address, "err", err)
		return nil
	}
	for _, s := range res.Msg.GetStored() {
		if s.StoreId == k.st.StoreID && int(s.Shard) == at.Shard && s.Pos == int64(at.Pos) {
			return s
		}
	}
	return nil
}

func (b *Broker) showHalf(ctx context.Context, id uuid.UUID, res *notifyv1.ShowMessageResponse) error {
	no, err := b.main.st.FindHalf(ctx, id)
	if err == nil {
		var h store.Half
		if h, err = b.main.st.GetHalf(ctx, no, id); err == nil {
			res.Half = b.halfProto(h)
		}
	}
	if err != nil && !errors.Is(err, store.ErrUnknownHalf) {
		return err
	}
	d, at, err := b.main.st.Decided(ctx, id)
	switch {
	case errors.Is(err, store.ErrUnknownHalf):
		return nil
	case err != nil:
		return err
	}
	res.Decision, res.DecidedAtUs = notifyv1.Decision_DECISION_COMMIT, at
	if d == store.RolledBack {
		res.Decision = notifyv1.Decision_DECISION_ROLLBACK
	}
	return nil
}

func (b *Broker) showOutbox(ctx context.Context, k *keeper, id uuid.UUID, res *notifyv1.ShowMessageResponse) error {
	rows, all, err := k.st.FindOutbox(ctx, id)
	if err != nil {
		return err
	}
	for _, r := range rows {
		res.Outbox = append(res.Outbox, &notifyv1.OutboxRow{Store: k.st.Name, Seq: r.Seq, Topic: validText(r.Msg.Topic), Key: validText(r.Msg.Key)})
	}
	rejected, allRejected, err := k.st.FindRejected(ctx, id)
	for _, r := range rejected {
		res.Rejected = append(res.Rejected, rejectedProto(k.st.Name, r))
	}
	if err == nil && (!all && len(rows) == 0 || !allRejected && len(rejected) == 0) {
		err = errors.New("only its 10,000 oldest rows were looked at: it has no index of ids")
	}
	return err
}

// showDedup looks the id up as an idempotency key of every topic.
func (b *Broker) showDedup(ctx context.Context, id uuid.UUID, res *notifyv1.ShowMessageResponse) error {
	topics := slices.Sorted(maps.Keys(b.declared.load().Topics))
	topic, until, err := b.main.st.FindDedup(ctx, id, topics)
	if err == nil && topic != "" {
		res.Dedup = &notifyv1.DedupKey{Store: b.main.st.Name, Topic: topic, ExpiresAtUs: until}
	}
	return err
}
