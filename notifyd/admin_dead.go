package notifyd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

const (
	// maxFilterIDs is the most ids of one filter.
	maxFilterIDs = 500
	// maxRedriveRate is the highest rate that a redrive may ask for.
	maxRedriveRate = 1_000_000
	// deadShardsAtOnce bounds the shards in which one call changes dead letters side by side.
	deadShardsAtOnce = 4
)

// ListDeadLetters implements the API. The list goes store by store, shard by shard, each by place.
func (b *Broker) ListDeadLetters(ctx context.Context, req *connect.Request[notifyv1.ListDeadLettersRequest]) (*connect.Response[notifyv1.ListDeadLettersResponse], error) {
	at, err := readDeadPlace(req.Msg.GetAfter())
	if err == nil {
		_, _, err = b.deadFilter(b.main, req.Msg.GetFilter())
	}
	if err != nil {
		return nil, rpcError(err)
	}
	most := listLimit(req.Msg.GetLimit())
	res := &notifyv1.ListDeadLettersResponse{}
	for _, k := range b.stores.all() {
		if at.store != "" && at.store != k.st.Name {
			continue
		}
		f, ok, err := b.deadFilter(k, req.Msg.GetFilter())
		if err != nil {
			return nil, rpcError(err)
		}
		for no := at.shard; ok && no < k.st.Shards; no++ {
			list, page, err := k.st.ListDead(ctx, no, f, at.key, most-len(res.DeadLetters), req.Msg.GetBodies())
			if err != nil {
				return nil, rpcError(err)
			}
			for _, d := range list {
				res.DeadLetters = append(res.DeadLetters, deadProto(k, d))
			}
			if page.More {
				res.Next = deadPlace{k.st.Name, no, page.Next}.String()
				return connect.NewResponse(res), nil
			}
			at.key = store.DeadKey{}
		}
		at = deadPlace{}
	}
	return connect.NewResponse(res), nil
}

// A deadPlace is where a list of dead letters goes on: "STORE/SHARD/POS/GROUP", behind that.
type deadPlace struct {
	store string
	shard int
	key   store.DeadKey
}

func (p deadPlace) String() string {
	return fmt.Sprintf("%s/%d/%d/%d", p.store, p.shard, int64(p.key.Pos), p.key.Group)
}

func readDeadPlace(s string) (p deadPlace, err error) {
	if s == "" {
		return p, nil
	}
	name, rest, _ := strings.Cut(s, "/")
	var pos int64
	if n, err := fmt.Sscanf(rest, "%d/%d/%d", &p.shard, &pos, &p.key.Group); n != 3 || err != nil || name == "" || p.shard < 0 {
		return p, badAfter()
	}
	p.store, p.key.Pos = name, shard.Pos(pos)
	return p, nil
}

func deadProto(k *keeper, d store.DeadLetter) *notifyv1.DeadLetter {
	m := messageProto(d.Msg)
	m.Key = strings.ToValidUTF8(m.Key, "\uFFFD")
	return &notifyv1.DeadLetter{Message: m, Group: k.groupName(d.Group), Store: k.st.Name, Reason: d.Reason, Attempts: uint32(d.Attempts),
		FirstError: d.FirstError, LastError: d.LastError, DeadAtUs: d.DeadAt}
}

// groupName is the group's name, or its number when it was dropped.
func (s *side) groupName(id int32) string { return s.registry.load().groupName(id) }

func (v *view) groupName(id int32) string {
	if name, ok := v.GroupNames[id]; ok {
		return name
	}
	return fmt.Sprintf("#%d", id)
}

// deadFilter reads a filter for one store. ok is false when nothing there can fit.
func (b *Broker) deadFilter(k *keeper, f *notifyv1.DeadLetterFilter) (out store.DeadFilter, ok bool, err error) {
	if name := f.GetGroup(); name != "" {
		if _, known := b.declared.load().Groups[name]; !known {
			return out, false, unknownGroup(name)
		}
		g, known := k.registry.load().Groups[name]
		if !known { // not declared in this store yet
			return out, false, nil
		}
		out.Group = g.ID
	}
	switch f.GetReason() {
	case "", deadRejected, deadMaxAttempts, deadExpired:
	default:
		return out, false, &message.FieldError{Field: "reason", Rule: "must be rejected, max_attempts or expired"}
	}
	out.Topic, out.Reason = f.GetTopic(), f.GetReason()
	if n := len(f.GetIds()); n > maxFilterIDs {
		return out, false, &message.FieldError{Field: "ids", Rule: "too many", Size: n, Limit: maxFilterIDs}
	}
	for _, text := range f.GetIds() {
		id, err := uuid.Parse(text)
		if err != nil {
			return out, false, &message.FieldError{Field: "ids", Rule: fmt.Sprintf("%q is not a UUID", text)}
		}
		out.IDs = append(out.IDs, id)
	}
	slices.SortFunc(out.IDs, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	out.IDs = slices.Compact(out.IDs)
	return out, true, nil
}

// RedriveDeadLetters implements the API.
func (b *Broker) RedriveDeadLetters(ctx context.Context, req *connect.Request[notifyv1.ChangeDeadLettersRequest]) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error) {
	return b.changeDeadLetters(ctx, req, notifyv1connect.AdminClient.RedriveDeadLetters, false)
}

// PurgeDeadLetters implements the API.
func (b *Broker) PurgeDeadLetters(ctx context.Context, req *connect.Request[notifyv1.ChangeDeadLettersRequest]) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error) {
	return b.changeDeadLetters(ctx, req, notifyv1connect.AdminClient.PurgeDeadLetters, true)
}

type deadCaller func(notifyv1connect.AdminClient, context.Context, *connect.Request[notifyv1.ChangeDeadLettersRequest]) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error)

// changeDeadLetters changes those of the shards owned here, and asks the other brokers for theirs.
func (b *Broker) changeDeadLetters(ctx context.Context, req *connect.Request[notifyv1.ChangeDeadLettersRequest], call deadCaller, purge bool) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error) {
	msg := req.Msg
	change := deadChange{count: msg.GetDryRun(), purge: purge, rate: int(msg.GetRate())}
	if change.rate == 0 {
		change.rate = b.cfg.RedriveRate
	}
	if err := b.checkChange(ctx, msg, change); err != nil {
		return nil, rpcError(err)
	}
	if msg.BeforeUs == 0 {
		_, now, err := b.main.st.Leases(ctx) // what is listed by now is before
		if err != nil {
			return nil, rpcError(err)
		}
		msg.BeforeUs = now
	}
	sum := &deadSum{}
	var all errgroup.Group
	all.Go(func() error { b.changeHere(ctx, msg, change, sum); return nil })
	if !isPassedOn(req.Header()) {
		for _, peer := range b.adminPeers() {
			all.Go(func() error { b.changeThere(ctx, peer, msg, call, sum); return nil })
		}
	}
	all.Wait()
	if !isPassedOn(req.Header()) {
		b.addMissing(sum)
	}
	return connect.NewResponse(sum.response(msg.GetBeforeUs())), nil
}

func (b *Broker) checkChange(ctx context.Context, msg *notifyv1.ChangeDeadLettersRequest, c deadChange) error {
	f := msg.GetFilter()
	empty := f.GetGroup() == "" && f.GetTopic() == "" && f.GetReason() == "" && len(f.GetIds()) == 0
	switch {
	case empty && !msg.GetAll():
		return &message.FieldError{Field: "filter", Rule: "is empty: set all to change every dead letter"}
	case !empty && msg.GetAll():
		return &message.FieldError{Field: "all", Rule: "is given together with a filter: leave one of them out"}
	case c.rate > maxRedriveRate:
		return &message.FieldError{Field: "rate", Rule: "too high", Size: c.rate, Limit: maxRedriveRate}
	}
	if f.GetGroup() != "" { // declared a moment ago?
		if err := b.main.readRegistry(ctx); err != nil {
			return err
		}
	}
	_, _, err := b.deadFilter(b.main, f)
	return err
}

// changeHere changes the dead letters of the shards owned here.
func (b *Broker) changeHere(ctx context.Context, msg *notifyv1.ChangeDeadLettersRequest, c deadChange, sum *deadSum) {
	var all errgroup.Group
	all.SetLimit(deadShardsAtOnce)
	for _, k := range b.stores.all() {
		f, ok, err := b.deadFilter(k, msg.GetFilter())
		f.Before = b.beforeIn(k, msg.GetBeforeUs())
		for _, o := range k.owned() {
			all.Go(func() error {
				var done deadDone
				err := err
				if ok && err == nil {
					done, err = o.changeSome(ctx, f, c)
				}
				out := o.outcome()
				out.Changed, out.More = uint64(done.changed), done.more
				if len(f.IDs) > 0 {
					for _, n := range done.names {
						out.Ids = append(out.Ids, n.ID.String())
					}
				}
				if err != nil {
					out.Error = err.Error()
				}
				sum.add(out)
				return nil
			})
		}
	}
	all.Wait()
}

// beforeIn is a time of the main store's clock by the clock of another store, as far as this broker knows both: what
// died until then is chosen by the clock that says when it did.
func (b *Broker) beforeIn(k *keeper, before int64) int64 {
	if k == b.main {
		return before
	}
	return before + k.clock.now() - b.main.clock.now()
}

func (o *owner) outcome() *notifyv1.ShardOutcome {
	return &notifyv1.ShardOutcome{Store: o.st.Name, StoreId: o.st.StoreID, Shard: uint32(o.no)}
}

// deadPeerTimeout bounds a call of another broker.
const deadPeerTimeout = 30 * time.Second

// changeThere asks another broker to change those of its shards.
func (b *Broker) changeThere(ctx context.Context, peer string, msg *notifyv1.ChangeDeadLettersRequest, call deadCaller, sum *deadSum) {
	ctx, cancel := context.WithTimeout(ctx, deadPeerTimeout)
	defer cancel()
	req := connect.NewRequest(msg)
	req.Header().Set(forwardedHeader, b.cfg.ID)
	res, err := call(notifyv1connect.NewAdminClient(b.forward.http, "http://"+peer, connect.WithGRPC()), ctx, req)
	if err != nil {
		b.log.Warn("a broker did not change its dead letters", "peer", peer, "err", err)
		return
	}
	sum.add(res.Msg.GetShards()...)
}

// adminPeers are the addresses of other live brokers that own shards of any store.
func (b *Broker) adminPeers() []string {
	var out []string
	for _, k := range b.stores.all() {
		out = append(out, k.peers()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// addMissing names the shards for which nobody has answered.
func (b *Broker) addMissing(sum *deadSum) {
	for _, k := range b.stores.all() {
		for no := range k.st.Shards {
			if !sum.has(k.st.StoreID, no) {
				sum.add(&notifyv1.ShardOutcome{Store: k.st.Name, StoreId: k.st.StoreID, Shard: uint32(no),
					Error: "its owner did not answer: try again"})
			}
		}
	}
	for _, name := range b.cfg.outboxStores() {
		if b.stores.byName(name) == nil {
			sum.add(&notifyv1.ShardOutcome{Store: name, Error: "the store is away: try again"})
		}
	}
}

// A deadSum gathers what was done, shard by shard.
type deadSum struct {
	mu   sync.Mutex
	list []*notifyv1.ShardOutcome
}

// add takes outcomes. A shard that moved during the call may have two: they are added up.
func (s *deadSum) add(outs ...*notifyv1.ShardOutcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, out := range outs {
		i := slices.IndexFunc(s.list, func(x *notifyv1.ShardOutcome) bool {
			return x.StoreId == out.StoreId && x.StoreId != "" && x.Shard == out.Shard
		})
		if i < 0 {
			s.list = append(s.list, out)
			continue
		}
		x := s.list[i]
		x.Changed, x.More, x.Ids = x.Changed+out.Changed, x.More || out.More, append(x.Ids, out.Ids...)
		x.Error = cmp.Or(x.Error, out.Error)
	}
}

func (s *deadSum) has(storeID string, no int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.list, func(x *notifyv1.ShardOutcome) bool { return x.StoreId == storeID && int(x.Shard) == no })
}

func (s *deadSum) response(before int64) *notifyv1.ChangeDeadLettersResponse {
	slices.SortFunc(s.list, func(a, b *notifyv1.ShardOutcome) int {
		return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Shard, b.Shard))
	})
	res := &notifyv1.ChangeDeadLettersResponse{BeforeUs: before, Shards: s.list}
	for _, out := range s.list {
		res.Changed += out.Changed
		res.More = res.More || out.More && out.Error == ""
	}
	return res
}
