package transact

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/IBM/sarama"
)

// produceAttempts at one batch.
const produceAttempts = 4

// requestRecords is about how many records go into one request: one is made while the leader
// has the one before in hand.
const requestRecords = 1000

// An answer is a leader's to a request.
type answer struct {
	leader *sarama.Broker
	parts  []Partition
	res    *sarama.ProduceResponse
	err    error
}

// produce sends the batches until each is acknowledged.
func (p *Producer) produce(ctx context.Context) error {
	left := slices.Collect(maps.Keys(p.batches))
	for attempt := 1; ; attempt++ {
		failed := p.deliver(left)
		if len(failed) == 0 {
			return nil
		}
		left = left[:0]
		for _, f := range failed {
			if !passing(f) || attempt == produceAttempts {
				return f
			}
			left = append(left, f.Partition)
		}
		if !pause(ctx, retryPause) {
			return ctx.Err()
		}
		_ = p.client.RefreshMetadata(topicsOf(left)...) // if it fails the next attempt does
	}
}

// topicsOf are the topics of partitions.
func topicsOf(parts []Partition) []string {
	var names []string
	for _, at := range parts {
		names = append(names, at.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// deliver sends the batches of these partitions, to all leaders at once, and returns what
// was not taken.
func (p *Producer) deliver(parts []Partition) (failed []*RecordError) {
	leaders, failed := p.leaders(parts)
	requests, answers := 0, make(chan answer, len(parts))
	for leader, parts := range leaders {
		groups := p.grouped(parts)
		requests += len(groups)
		go func() {
			for _, group := range groups {
				p.request(leader, group, answers)
			}
		}()
	}
	for range requests {
		a := <-answers
		if a.err != nil {
			_ = a.leader.Close() // it is opened anew
		}
		for _, at := range a.parts {
			if err := a.of(at); err != nil {
				failed = append(failed, &RecordError{at, err})
			}
		}
	}
	return failed
}

// leaders finds the leader of each partition. All are looked up at once: one that is not
// known is asked for, and the client makes a single question of all that are asked for meanwhile.
func (p *Producer) leaders(parts []Partition) (map[*sarama.Broker][]Partition, []*RecordError) {
	found, errs := make([]*sarama.Broker, len(parts)), make([]error, len(parts))
	var all sync.WaitGroup
	for i, at := range parts {
		all.Go(func() { found[i], errs[i] = p.client.Leader(at.Topic, at.Number) })
	}
	all.Wait()
	leaders, failed := make(map[*sarama.Broker][]Partition), []*RecordError(nil)
	for i, at := range parts {
		if errs[i] != nil {
			failed = append(failed, &RecordError{at, errs[i]})
			continue
		}
		leaders[found[i]] = append(leaders[found[i]], at)
	}
	return leaders, failed
}

// grouped shares partitions out to requests. One has a single batch in a transaction, so
// their order makes no difference.
func (p *Producer) grouped(parts []Partition) (groups [][]Partition) {
	n := requestRecords
	for _, at := range parts {
		if n >= requestRecords {
			groups, n = append(groups, nil), 0
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], at)
		n += len(p.batches[at].Records)
	}
	return groups
}

// request sends the batches of partitions to their leader, whose answer goes to out.
func (p *Producer) request(leader *sarama.Broker, parts []Partition, out chan<- answer) {
	req := &sarama.ProduceRequest{
		Version: 7, TransactionalID: &p.id, RequiredAcks: sarama.WaitForAll, Timeout: int32(p.timeout.Milliseconds()),
	}
	for _, at := range parts {
		req.AddBatch(at.Topic, at.Number, p.batches[at])
	}
	// The callback must not touch the broker.
	err := leader.AsyncProduce(req, func(res *sarama.ProduceResponse, err error) { out <- answer{leader, parts, res, err} })
	if err != nil {
		out <- answer{leader, parts, nil, err}
	}
}

// of is what became of a partition's batch.
func (a answer) of(at Partition) error {
	if a.err != nil {
		return a.err
	}
	block := a.res.GetBlock(at.Topic, at.Number)
	if block == nil {
		return sarama.ErrIncompleteResponse
	}
	if block.Err == sarama.ErrDuplicateSequenceNumber { // taken before, and the answer was lost
		return nil
	}
	return errorOf(block.Err)
}
