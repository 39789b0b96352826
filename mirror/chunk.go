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
	headers []*sarama.RecordHeader
	arena   record.Arena
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

// item is a record on its way to the producer. Its address must not change once sent.
type item struct {
	record    sarama.Record
	topic     *topic
	partition int32
	at        time.Time
	bornAt    int64
	size      int
}

// itemMemory is about what an item takes besides its bytes, sarama's share included.
const itemMemory = 1 << 10

// add makes a message's record, of that size at most, in the chunk's memory.
func (c *chunk) add(m record.Message, size int, t *topic) {
	rec := c.arena.Encode(m)
	first := len(c.headers)
	for i := range rec.Headers { // the types have the same fields
		c.headers = append(c.headers, (*sarama.RecordHeader)(&rec.Headers[i]))
	}
	c.items = append(c.items, item{
		record: sarama.Record{
			Key: rec.Key, Value: rec.Value, Headers: c.headers[first:len(c.headers):len(c.headers)],
		},
		topic: t, partition: record.Partition(rec.Key, t.Partitions), at: rec.Timestamp, bornAt: m.BornAt.UnixMicro(), size: size,
	})
	c.size += size
	if c.lowest == 0 || t.limit < c.lowest {
		c.lowest = t.limit
	}
	c.memory += int64(size) + itemMemory
}

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
	clear(c.headers)
	c.arena.Reset()
	*c = chunk{items: c.items[:0], headers: c.headers[:0], arena: c.arena, fresh: c.fresh[:0]}
	c.at.Shards = shards
	p.pool.Put(c)
}
