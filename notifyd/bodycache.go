package notifyd

import (
	"container/list"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
	"notifymirror/notifyd/store"
)

// bodyCacheBytes bounds the body cache of a broker.
const bodyCacheBytes = 64 << 20

// A bodyCache keeps messages that have pending rows, so that an early retry reads the row and not the
// message. A message enters when it gets rows or was read for one, and leaves with its last row, or when
// it is the oldest and the room is needed. Rows alone say what is due: the cache holds only what never changes.
type bodyCache struct {
	limit        int // bytes
	hits, misses prometheus.Counter

	mu      sync.Mutex
	entries map[bodyKey]*list.Element // of *cachedBody
	order   *list.List                // oldest first
	bytes   int
}

type bodyKey struct {
	shard shardKey
	pos   shard.Pos
}

type cachedBody struct {
	key  bodyKey
	msg  *message.Message
	rows int // that may still be read
}

func newBodyCache(limit int, m *metrics) *bodyCache {
	return &bodyCache{limit: limit, hits: m.bodyHits, misses: m.bodyMisses, entries: map[bodyKey]*list.Element{}, order: list.New()}
}

// put keeps a message that has, or is to have, rows. One that is there already keeps its place.
func (c *bodyCache) put(k bodyKey, m *message.Message, rows int) {
	if m.Size() > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil {
		b := e.Value.(*cachedBody)
		b.rows = max(b.rows, rows)
		return
	}
	c.entries[k] = c.order.PushBack(&cachedBody{k, m, rows})
	c.bytes += m.Size()
	for c.bytes > c.limit {
		c.remove(c.order.Front())
	}
}

// get returns a message, or nil.
func (c *bodyCache) get(k bodyKey) *message.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil {
		c.hits.Inc()
		return e.Value.(*cachedBody).msg
	}
	c.misses.Inc()
	return nil
}

// rowGone drops a message with the last of its rows.
func (c *bodyCache) rowGone(k bodyKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil {
		if b := e.Value.(*cachedBody); b.rows > 1 {
			b.rows--
			return
		}
		c.remove(e)
	}
}

// drop forgets a message.
func (c *bodyCache) drop(k bodyKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil {
		c.remove(e)
	}
}

// remove takes an entry out. The lock is held.
func (c *bodyCache) remove(e *list.Element) {
	b := c.order.Remove(e).(*cachedBody)
	delete(c.entries, b.key)
	c.bytes -= b.msg.Size()
}

func (o *owner) bodyKey(pos shard.Pos) bodyKey { return bodyKey{shardKey{o.storeID, o.no}, pos} }

// body is the message of a pending row, if it is at hand.
func (o *owner) body(pos shard.Pos) *message.Message { return o.bodies.get(o.bodyKey(pos)) }

// keepBodies keeps the messages to which a settlement is about to give rows: the reader may see these
// before the settler knows that it has committed.
func (o *owner) keepBodies(s *store.Settlement) {
	for _, k := range s.Plan.Kept {
		o.bodies.put(o.bodyKey(k.Pos), k.Msg, k.Rows)
	}
}

// dropBodies drops what a settlement has removed.
func (o *owner) dropBodies(s *store.Settlement) {
	for _, pos := range s.Plan.Delete {
		o.bodies.drop(o.bodyKey(pos))
	}
	for _, a := range s.Acks {
		o.bodies.rowGone(o.bodyKey(a.Pos))
	}
	for _, d := range s.Deads {
		o.bodies.rowGone(o.bodyKey(d.Pos))
	}
}
