package mirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"notifymirror/mirror/transact"
)

// Kafka's own topics, without which no transaction ends and no group has a leader.
const (
	transactionsTopic = "__transaction_state"
	offsetsTopic      = "__consumer_offsets"
)

// mayLackReplicas are what Kafka answers, among other causes, where too few brokers have a
// partition: it cannot end the last transaction, or store who is active. It does not say why.
var mayLackReplicas = [...]error{
	sarama.ErrConcurrentTransactions, sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer,
	sarama.ErrOffsetsLoadInProgress, sarama.ErrLeaderNotAvailable, sarama.ErrRequestTimedOut, errNoLeader,
}

// explained adds to an error for which Kafka gives no cause the one that can be seen from
// outside: a partition of Kafka's own topics, of checkpoints or of topics has no leader, or
// fewer replicas in sync than its topic wants. What cannot be seen is not added.
func (c *Copier) explained(err error, checkpoints string, topics map[string]topicRecord) error {
	if !slices.ContainsFunc(mayLackReplicas[:], func(suspect error) bool { return errors.Is(err, suspect) }) {
		return err
	}
	k, failed := dial(c.config, "", c.dialer)
	if failed != nil {
		return err
	}
	names := append(slices.Collect(maps.Keys(topics)), transactionsTopic, offsetsTopic, checkpoints)
	lack, failed := k.lack(names)
	failed = errors.Join(failed, k.close())
	if failed != nil || lack == nil {
		return err
	}
	return fmt.Errorf("%w: %w", lack, err)
}

// lackError is a partition that cannot be written, since brokers are away.
type lackError struct {
	transact.Partition
	inSync, replicas []int32
	least            int // that must be in sync
}

func (e *lackError) Error() string {
	if e.least == 0 {
		return fmt.Sprintf("kafka topic %s partition %d: no leader: it is on brokers %v", e.Topic, e.Number, e.replicas)
	}
	return fmt.Sprintf("kafka topic %s partition %d: in sync on brokers %v of %v, and min.insync.replicas is %d", e.Topic, e.Number, e.inSync, e.replicas, e.least)
}

func (e *lackError) Is(target error) bool { return target == sarama.ErrNotEnoughReplicas }

// lack returns the first partition of topics that cannot be written for want of brokers.
func (k *kafka) lack(topics []string) (*lackError, error) {
	res, err := k.metadata(topics)
	if err != nil {
		return nil, err
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			e := &lackError{Partition: transact.Partition{Topic: t.Name, Number: p.ID}, inSync: p.Isr, replicas: p.Replicas}
			switch {
			case p.Leader < 0:
				return e, nil
			case len(p.Isr) < len(p.Replicas):
				if e.least, err = k.number(t.Name, "min.insync.replicas"); err != nil {
					return nil, err
				}
				if len(p.Isr) < e.least {
					return e, nil
				}
			}
		}
	}
	return nil, nil
}
