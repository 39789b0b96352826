package notifyd

import (
	"context"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// forwardTimeout bounds one batch on its way through another broker.
const forwardTimeout = 15 * time.Second

// A forwarder is the sink of a broker that owns no shard: it passes batches on to a broker
// that does, one after another, so that the order of every stream is kept.
type forwarder struct {
	*core
	self  string
	peers func() []string // addresses of brokers that own shards
	http  *http.Client
	queue *batchQueue
}

func newForwarder(c *core, self string, peers func() []string) *forwarder {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &forwarder{core: c, self: self, peers: peers, queue: newBatchQueue(),
		http: &http.Client{Transport: &http.Transport{Protocols: protocols}}}
}

func (f *forwarder) put(p *publish) bool { return f.queue.put(p) }

// run passes on until ctx is done.
func (f *forwarder) run(ctx context.Context) {
	defer f.http.CloseIdleConnections()
	defer f.queue.failAll(newError(notifyv1.Reason_REASON_UNAVAILABLE, "the broker is stopping"))
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.queue.ready:
		}
		if batch, _ := f.queue.take(); len(batch) > 0 {
			f.forward(ctx, batch)
		}
	}
}

// forward sends one batch on a stream of its own to the first peer that takes it.
func (f *forwarder) forward(ctx context.Context, batch []*publish) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	peer := f.peer(ctx)
	if peer == "" {
		failBatch(batch, newError(notifyv1.Reason_REASON_UNAVAILABLE, "no broker that owns a shard can be reached now: try again"))
		return
	}
	client := notifyv1connect.NewMessagingClient(f.http, "http://"+peer, connect.WithGRPC())
	stream := client.PublishStream(ctx)
	stream.RequestHeader().Set(forwardedHeader, f.self)
	defer stream.CloseResponse()
	req := &notifyv1.PublishStreamRequest{}
	for _, p := range batch {
		req.Publishes = append(req.Publishes, toRequest(p))
	}
	err := stream.Send(req)
	if err == nil {
		err = stream.CloseRequest()
	}
	for err == nil && len(batch) > 0 {
		var res *notifyv1.PublishStreamResponse
		if res, err = stream.Receive(); err == nil {
			batch = answerForwarded(batch, res.GetResults())
		}
	}
	if len(batch) > 0 {
		failBatch(batch, newError(notifyv1.Reason_REASON_RESULT_UNKNOWN,
			"result unknown: broker %s did not answer; send it again with the same idempotency key: %s", peer, err))
	}
}

// peerTimeout bounds a look whether a peer takes connections.
const peerTimeout = 2 * time.Second

// peer is the first broker with shards that takes connections, or "".
func (f *forwarder) peer(ctx context.Context) string {
	d := net.Dialer{Timeout: peerTimeout}
	for _, p := range f.peers() {
		conn, err := d.DialContext(ctx, "tcp", p)
		if err == nil {
			conn.Close()
			return p
		}
	}
	return ""
}

// answerForwarded answers the first publishes of the batch and returns the rest.
func answerForwarded(batch []*publish, results []*notifyv1.PublishResult) []*publish {
	for _, r := range results {
		if len(batch) == 0 {
			return nil
		}
		p := batch[0]
		batch = batch[1:]
		if d := r.GetError(); d != nil {
			code, _ := traits(d.GetReason())
			p.fail(&apiError{detail: d, code: code})
			continue
		}
		p.id = p.item.Msg.ID
		if r.GetDuplicate() {
			if id, err := uuid.Parse(r.GetId()); err == nil {
				p.id = id
			}
		}
		p.stored(p.id, r.GetDuplicate())
	}
	return batch
}

func toRequest(p *publish) *notifyv1.PublishRequest {
	m := p.item.Msg
	return &notifyv1.PublishRequest{IdempotencyKey: p.item.IdempotencyKey, Message: &notifyv1.Message{
		Id: m.ID.String(), Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body,
		DeliverAtUs: m.DeliverAt, ExpiresAtUs: m.ExpiresAt}}
}
