package transact

import (
	"context"

	"github.com/IBM/sarama"
)

// A Member is one of a consumer group, as the group knows it. Kafka takes no offsets from
// who is not a member any more, or not of this generation.
type Member struct {
	Group      string
	ID         string
	Generation int32
	// Instance is the id of a static member; may be nil.
	Instance *string
}

// offsets are what a transaction commits of a consumer group.
type offsets struct {
	of     Member
	topics map[string][]*sarama.PartitionOffsetMetadata
}

// Offset adds to the transaction where a group is to go on in a partition, with a note of
// its own choice. All offsets of a transaction are of one member.
func (p *Producer) Offset(of Member, at Partition, next int64, note string) {
	if p.offsets == nil {
		p.offsets = &offsets{of: of, topics: make(map[string][]*sarama.PartitionOffsetMetadata)}
	}
	p.offsets.topics[at.Topic] = append(p.offsets.topics[at.Topic],
		&sarama.PartitionOffsetMetadata{Partition: at.Number, Offset: next, LeaderEpoch: -1, Metadata: &note})
}

// joinGroup makes the group known to the transaction's coordinator.
func (p *Producer) joinGroup(ctx context.Context) error {
	return p.ask(ctx, func(coordinator *sarama.Broker) error {
		r, err := coordinator.AddOffsetsToTxn(&sarama.AddOffsetsToTxnRequest{
			Version: 3, TransactionalID: p.id, ProducerID: p.number, ProducerEpoch: p.epoch, GroupID: p.offsets.of.Group,
		})
		if err != nil {
			return err
		}
		return errorOf(r.Err)
	})
}

// commitOffsets gives the offsets to the group's coordinator, which keeps them until the
// transaction ends.
func (p *Producer) commitOffsets(ctx context.Context) error {
	if p.offsets == nil {
		return nil
	}
	of := p.offsets.of
	return askOf(ctx, of.Group, p.client.Coordinator, p.client.RefreshCoordinator, func(coordinator *sarama.Broker) error {
		r, err := coordinator.TxnOffsetCommit(&sarama.TxnOffsetCommitRequest{
			Version: 3, TransactionalID: p.id, ProducerID: p.number, ProducerEpoch: p.epoch, Topics: p.offsets.topics,
			GroupID: of.Group, MemberID: of.ID, GenerationID: of.Generation, GroupInstanceID: of.Instance,
		})
		if err != nil {
			return err
		}
		return p.offsetsTaken(r)
	})
}

// offsetsTaken looks for an answer to each offset.
func (p *Producer) offsetsTaken(r *sarama.TxnOffsetCommitResponse) error {
	for topic, sent := range p.offsets.topics {
		answers := make(map[int32]sarama.KError)
		for _, a := range r.Topics[topic] {
			answers[a.Partition] = a.Err
		}
		for _, o := range sent {
			answer, given := answers[o.Partition]
			if !given {
				return sarama.ErrIncompleteResponse
			}
			if answer != sarama.ErrNoError {
				return &RecordError{Partition{topic, o.Partition}, answer}
			}
		}
	}
	return nil
}
