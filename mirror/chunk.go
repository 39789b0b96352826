package mirror

import (
	"sync"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/canal"
	"notifymirror/mirror/record"
)

// A chunk goes from the reader to the writer: a transaction's records, or a piece of a
// large one's, and the checkpoint behind them. All its records go into one Kafka
// transaction. It owns the memory of its records, so that both can be used again.
type chunk struct {
	items   []item
	headers []sarama.RecordHeader
	bytes   []byte
	// fresh topics, whose records must be written with the chunk
	fresh []topicRecord
	// size and lowest as batch.add wants them
	size, lowest int
	// at is the checkpoint behind the chunk; the writer completes it.
	at checkpoint
	// instant and end are what lag.settled wants when the chunk is in Kafka.
	instant time.Time
	end     canal.Place
	// memory is what the chunk needs of the memory budget, and held what it has of it.
	memory, held int64
}

// item is a record on its way through sarama. Its addresses must not change once sent.
type item struct {
	msg        sarama.ProducerMessage
	key, value encoded
	topic      *topic
	bornAt     int64
	size       int
}

// encoded is a sarama.Encoder without an allocation of its own.
type encoded []byte

func (e *encoded) Encode() ([]byte, error) { return *e, nil }
func (e *encoded) Length() int             { return len(*e) }

// itemMemory is about what an item takes besides its bytes, sarama's share included.
const itemMemory = 1 << 10

// add copies a record in.
func (c *chunk) add(rec record.Record, size int, t *topic, partition int32, bornAt int64) {
	first := len(c.headers)
	for _, h := range rec.Headers {
		c.headers = append(c.headers, sarama.RecordHeader(h))
	}
	c.items = append(c.items, item{
		msg: sarama.ProducerMessage{
			Topic: t.Topic, Partition: partition, Timestamp: rec.Timestamp,
			Headers: c.headers[first:len(c.headers):len(c.headers)],
		},
		key: c.copy(rec.Key), value: c.copy(rec.Value), topic: t, bornAt: bornAt, size: size,
	})
	c.size += size
	if c.lowest == 0 || t.limit < c.lowest {
		c.lowest = t.limit
	}
	c.memory += int64(size) + itemMemory
}

// copy keeps b in the chunk's memory. Bytes kept earlier do not move.
func (c *chunk) copy(b []byte) []byte {
	const least = 4 << 10
	if len(b) > cap(c.bytes)-len(c.bytes) {
		c.bytes = make([]byte, 0, max(len(b), min(mostKept, max(least, 2*cap(c.bytes)))))
	}
	n := len(c.bytes)
	c.bytes = append(c.bytes, b...)
	return c.bytes[n:len(c.bytes):len(c.bytes)]
}

// mostKept is the most bytes that a chunk keeps for its next use.
const mostKept = 4 << 20

// chunks are used again once nothing of them is on its way.
type chunkPool struct{ pool sync.Pool }

func (p *chunkPool) get() *chunk {
	if c, ok := p.pool.Get().(*chunk); ok {
		return c
	}
	return new(chunk)
}

func (p *chunkPool) put(c *chunk) {
	shards := c.at.Shards[:0]
	clear(c.items)
	if cap(c.bytes) > mostKept {
		c.bytes = nil
	}
	*c = chunk{items: c.items[:0], headers: c.headers[:0], bytes: c.bytes[:0], fresh: c.fresh[:0]}
	c.at.Shards = shards
	p.pool.Put(c)
}
