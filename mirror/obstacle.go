package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"notifymirror/mirror/access"
	"notifymirror/mirror/transact"
)

// An Obstacle is what Kafka refuses until somebody mends something there. The mirror waits:
// it writes nothing twice, tries again every few seconds, and goes on by itself as soon as
// the cause is gone. What is not copied yet stays in the binlog meanwhile.
type Obstacle struct {
	Reason Reason
	// Err says what Kafka refused, and where.
	Err error
	// Repair is what to do, with the command where there is one.
	Repair string
}

// Error says what was refused, and what to do.
func (o *Obstacle) Error() string { return fmt.Sprintf("%v; %s", o.Err, o.Repair) }

// Unwrap returns Err.
func (o *Obstacle) Unwrap() error { return o.Err }

// Reasons for which a mirror waits for somebody to mend Kafka.
const (
	ReasonReplicas  Reason = "replicas"
	ReasonStorage   Reason = "storage"
	ReasonDenied    Reason = "denied"
	ReasonTimestamp Reason = "timestamp"
)

// obstacleReasons are all of an Obstacle; ReasonTooLarge is one of them.
var obstacleReasons = [...]Reason{ReasonTooLarge, ReasonReplicas, ReasonStorage, ReasonDenied, ReasonTimestamp}

// obstacle returns what an error means that a person must mend in Kafka, or nil for one
// that may go away by itself.
func (c *Copier) obstacle(err error) *Obstacle {
	if o, ok := errors.AsType[*Obstacle](err); ok {
		return o
	}
	topic := "TOPIC"
	if p, ok := errors.AsType[*transact.RecordError](err); ok {
		topic = p.Topic
	}
	if l, ok := errors.AsType[*lackError](err); ok {
		topic = l.Topic
	}
	at, principal := strings.Join(c.config.Kafka.Brokers, ","), "User:"+cmp.Or(c.config.Kafka.Access.SASL.User, "CANALD")
	describe := fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --describe --topic %s", at, topic)
	away := "start the brokers that are away (" + describe + "); or lower min.insync.replicas: " + setTopic(at, topic, "min.insync.replicas", "N")
	topics := fmt.Sprintf("allow Create, Read, Write, Describe and DescribeConfigs on topics that begin with %s and _notify-checkpoint.: "+
		"kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --operation All --resource-pattern-type prefixed --topic %s (and --topic _notify-checkpoint.)",
		c.config.TopicPrefix, at, principal, c.config.TopicPrefix)
	if mend, denied := access.Mend(err); denied && ofKafka(err) {
		return &Obstacle{ReasonDenied, err, mend + " (canald goes on by itself; a change of its own configuration needs a restart)"}
	}
	for _, known := range []struct {
		err    error
		reason Reason
		repair string
	}{
		{sarama.ErrNotEnoughReplicas, ReasonReplicas, away},
		{sarama.ErrNotEnoughReplicasAfterAppend, ReasonReplicas, away},
		{sarama.ErrKafkaStorageError, ReasonStorage, "make room on the disk of the partition's leader, or mend the disk, and start that broker again (" + describe + ")"},
		{sarama.ErrMessageSizeTooLarge, ReasonTooLarge, "raise it with: " + setTopic(at, topic, "max.message.bytes", fmt.Sprint(int64(c.config.MaxBodyBytes)+TopicOverhead))},
		{sarama.ErrTopicAuthorizationFailed, ReasonDenied, topics},
		{sarama.ErrClusterAuthorizationFailed, ReasonDenied, topics + ", or make the topics yourself"},
		{sarama.ErrTransactionalIDAuthorizationFailed, ReasonDenied, fmt.Sprintf("allow Write and Describe on transactional ids that begin with %s/: "+
			"kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --operation Write --operation Describe --resource-pattern-type prefixed --transactional-id %s/", c.config.Cluster, at, principal, c.config.Cluster)},
		{sarama.ErrGroupAuthorizationFailed, ReasonDenied, fmt.Sprintf("allow Read on consumer groups that begin with %s/: "+
			"kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --operation Read --resource-pattern-type prefixed --group %s/", c.config.Cluster, at, principal, c.config.Cluster)},
		{sarama.ErrInvalidTimestamp, ReasonTimestamp, "records have the time of their commit: mend the clock of the store's server, or let the topic take them: " +
			setTopic(at, topic, "message.timestamp.before.max.ms", "9223372036854775807")},
	} {
		if errors.Is(err, known.err) {
			return &Obstacle{known.reason, err, known.repair}
		}
	}
	return nil
}

// ofKafka tells a Kafka that lets nobody in from a store that does not: the same certificates fail for both.
func ofKafka(err error) bool {
	_, answered := errors.AsType[sarama.KError](err)
	return answered || errors.Is(err, sarama.ErrOutOfBrokers)
}

// setTopic is the command that changes a topic's setting.
func setTopic(brokers, topic, key, value string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s=%s", brokers, topic, key, value)
}

// stuck is where a mirror met an obstacle. Until it has come past that place it has not
// gone on, though it may have begun anew.
type stuck struct {
	on              bool
	generation, seq uint64
}

// meet notes the place of an obstacle.
func (s *stuck) meet(generation, seq uint64) { *s = stuck{true, generation, seq} }

// past tells whether a checkpoint is behind the obstacle, and forgets that then.
func (s *stuck) past(at checkpoint) bool {
	if s.on && at.Generation == s.generation && at.Seq <= s.seq {
		return false
	}
	*s = stuck{}
	return true
}
