package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"notifymirror/canal"
	"notifymirror/mirror/transact"
)

// EmbeddedCluster is the id that the embedded Kafka gives itself.
const EmbeddedCluster = "notify-embedded"

// A start is a mirror that took over, and knows where to go on. The order of its making
// is what makes the mirror exact:
//
//	confirm the turn          the group's last word is that this canald is the active one
//	initialise the producer   aborts the predecessor's open transaction, and fences it
//	read the checkpoint       to the high watermark; older than the initialisation, it would
//	                          hide behind the open transaction
//	verify                    the store, its server, and the topics are those of the checkpoint,
//	                          or its server is the one that was promoted since;
//	                          the server has all that was copied, and all that comes next
//
// Then the binlog is read from the checkpoint's position, and the reader verifies that.
type start struct {
	kafka    *kafka
	producer *transact.Producer
	info     storeInfo
	topic    string // of checkpoints
	at       checkpoint
	topics   map[string]topicRecord
	// change is what made at another checkpoint than the one that was read.
	change *change
	// grown are topics whose records were changed by it.
	grown []topicRecord
	// first tells that nothing of the store was copied yet.
	first bool
}

// open makes a start. What it returns beside an error must be closed all the same.
func (c *Copier) open(ctx context.Context, m *member) (s *start, err error) {
	s = new(start)
	if s.info, err = c.askStore(ctx); err != nil {
		return s, err
	}
	s.topic = checkpointTopic(s.info.id)
	if s.topic != m.group.topic {
		return s, &awayError{fmt.Errorf("the store's id is now %s", s.info.id)}
	}
	if s.kafka, err = dial(c.config, c.config.Cluster+"/"+s.info.id, c.dialer); err != nil {
		return s, err
	}
	if err := c.checkCluster(s.kafka); err != nil {
		return s, err
	}
	if err := openCheckpointTopic(ctx, s.kafka, s.topic, c.config.ReplicationFactor); err != nil {
		return s, c.refusal(err)
	}
	if err := m.confirm(ctx); err != nil {
		return s, err
	}
	if s.producer, err = transact.New(ctx, s.kafka.client, s.kafka.transactionalID, c.config.TransactionTimeout); err != nil {
		return s, c.refusal(err)
	}
	saved, virgin, err := readCheckpoint(ctx, s.kafka, s.topic)
	if err != nil {
		return s, err
	}
	s.topics = saved.topics
	if saved.checkpoint == nil {
		s.at = firstCheckpoint(s.info)
		if err = c.checkFirst(ctx, s, virgin); errors.Is(err, ErrCheckpointLost) {
			err = c.beginAgain(ctx, s, err)
		} else if err == nil {
			c.adopt().finish(fmt.Errorf("nothing of store %s was mirrored yet, and there is no checkpoint to change: start canald first", c.name))
			err = ctx.Err()
		}
	} else {
		s.at = *saved.checkpoint
		c.board.found(s.at)
		c.change(ctx, s)
		if err = ctx.Err(); err == nil { // else that was all
			err = c.follow(ctx, s)
		}
		if err == nil {
			err = verifyStore(s.at, s.info)
		}
	}
	if err != nil {
		return s, err
	}
	s.first = s.at.Seq == 0 && s.at.GTIDs == s.info.installed
	if err := c.readable(ctx, s); err != nil {
		return s, err
	}
	return s, c.checkTopics(s.topics, s.kafka)
}

// readable tells why the binlog cannot be read on from where s is. A store of which nothing
// was copied, and of whose binlog a part is purged, begins with a backfill.
func (c *Copier) readable(ctx context.Context, s *start) error {
	err := s.uncovered()
	switch {
	case s.at.Backfill.Wanted:
		return nil // that finds another position
	case s.first && (c.used || errors.Is(err, canal.ErrPurged)):
		c.used = false
		s.at.Backfill.Wanted, s.at.GTIDs = true, s.info.position.GTIDs
		c.log.Info("store was used before it was mirrored, and a part of its binlog is purged: what it still holds is copied from its tables")
		return nil
	case err != nil:
		return c.nameAhead(ctx, s, s.sourceError(err))
	}
	return c.compareLast(ctx, s.at)
}

// close ends what was opened.
func (s *start) close() error {
	if s.kafka == nil {
		return nil
	}
	err := s.kafka.close()
	if s.producer != nil {
		s.producer.Wait()
	}
	return err
}

// checkCluster refuses the embedded Kafka where it was not asked for.
func (c *Copier) checkCluster(k *kafka) error {
	id, err := k.clusterID()
	if err != nil {
		return err
	}
	if id == EmbeddedCluster && !c.config.Kafka.AllowEmbedded {
		return haltf(ReasonConfig, ErrConfig, "name a real Kafka, or set kafka.allow_embedded: true for development",
			"kafka.brokers: %s is the embedded Kafka, which is for development only", strings.Join(c.config.Kafka.Brokers, ","))
	}
	return nil
}

// refusal makes a halt of what Kafka refuses whenever it is asked, until the configuration
// of canald or of the brokers is another.
func (c *Copier) refusal(err error) error {
	for _, known := range []struct {
		err    error
		repair string
	}{
		{sarama.ErrInvalidTransactionTimeout, "lower transaction_timeout, or raise transaction.max.timeout.ms of the brokers"},
		{sarama.ErrInvalidReplicationFactor, "set replication_factor to at most the number of brokers"},
		{sarama.ErrInvalidSessionTimeout, fmt.Sprintf("allow sessions of %d ms: group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers", Session.Milliseconds())},
		{sarama.ErrInconsistentGroupProtocol, "another program is in the consumer group " + c.config.Cluster + "/STORE-ID: end it, or choose another cluster name"},
	} {
		if errors.Is(err, known.err) {
			return halt(ReasonConfig, known.repair, fmt.Errorf("%w: %w", ErrConfig, err))
		}
	}
	return err
}

// readCheckpoint reads a checkpoint topic to its high watermark. virgin tells that nothing
// was ever committed there: every offset from 0 on is there, and of no committed record.
func readCheckpoint(ctx context.Context, k *kafka, topic string) (saved savedState, virgin bool, err error) {
	first, end, err := k.partitionEnds(topic, 0)
	if err != nil {
		return savedState{}, false, err
	}
	records := 0
	whole, err := k.readCommitted(ctx, topic, 0, first, end, func(r *sarama.Record) error {
		records++
		return saved.apply(r.Key, r.Value)
	})
	if errors.Is(err, ErrCheckpointFormat) {
		return savedState{}, false, halt(ReasonCheckpoint, "run the version of canald that wrote it, or a newer one",
			fmt.Errorf("%s: %w", topic, err))
	}
	return saved, whole && first == 0 && records == 0, err
}

// firstCheckpoint is where a store begins that was never mirrored: at its installation.
func firstCheckpoint(info storeInfo) checkpoint {
	return checkpoint{
		Store: info.id, Generation: 1, Flavor: string(info.flavor), GTIDs: info.installed,
		Shards: make([]int64, info.shards), Server: string(info.server),
	}
}

// verifyStore compares a checkpoint with the store that the DSN leads to.
func verifyStore(at checkpoint, info storeInfo) error {
	switch {
	case at.Store != info.id:
		return haltf(ReasonCheckpoint, ErrStoreChanged, "mend stores in canald's configuration", "the checkpoint is of store %s, the dsn leads to %s", at.Store, info.id)
	case len(at.Shards) != info.shards:
		return haltf(ReasonCheckpoint, ErrStoreChanged, acceptGap, "the store has %d shards, the checkpoint knows %d", info.shards, len(at.Shards))
	case at.Flavor != string(info.flavor) || at.Server != string(info.server):
		return haltf(ReasonServer, ErrServerChanged, serverRepair,
			"the dsn leads to %s server %s, the checkpoint is of %s server %s; %s", info.flavor, info.server, at.Flavor, at.Server, at.risk(ReasonServer))
	}
	return nil
}

// sourceError is sourceError of the stream that begins at s, with what is lost or at risk.
func (s *start) sourceError(err error) error {
	err = sourceError(err)
	if h, ok := errors.AsType[*Halt](err); ok && !s.first {
		if risk := s.at.risk(h.Reason); risk != "" {
			h.Err = fmt.Errorf("%w; %s", h.Err, risk)
		}
	}
	return err
}

// sourceError gives an error of the binlog stream its place among the halts.
func sourceError(err error) error {
	var stop *canal.StopError
	if !errors.As(err, &stop) {
		return err
	}
	for _, known := range []struct {
		reason   error
		halt     Reason
		sentinel error
	}{
		{canal.ErrPurged, ReasonPurged, ErrPurged},
		{canal.ErrFileGone, ReasonFileGone, ErrFileGone},
		{canal.ErrPastEnd, ReasonPastEnd, ErrPastEnd},
		{canal.ErrAheadOfServer, ReasonAhead, ErrCheckpointAhead},
		{canal.ErrServerChanged, ReasonServer, ErrServerChanged},
		{canal.ErrPosition, ReasonCheckpoint, ErrCheckpointFormat},
		{canal.ErrPartialRow, ReasonRow, ErrRow},
		{canal.ErrNoColumnNames, ReasonRow, ErrRow},
		{canal.ErrColumnType, ReasonRow, ErrRow},
		{canal.ErrAuth, ReasonConfig, ErrConfig},
		{canal.ErrGrant, ReasonConfig, ErrConfig},
		{canal.ErrServerIDTaken, ReasonConfig, ErrConfig},
		{canal.ErrSettings, ReasonConfig, ErrConfig},
		{canal.ErrSpool, ReasonConfig, ErrConfig},
		{canal.ErrTooLarge, ReasonTooLarge, ErrTooLarge},
	} {
		if errors.Is(stop.Reason, known.reason) {
			return haltOf(known.halt, known.sentinel, stop)
		}
	}
	return haltOf(ReasonUnknownEvent, ErrStream, stop)
}

func haltOf(reason Reason, sentinel error, stop *canal.StopError) *Halt {
	repair := stop.Mend
	if repair == "" {
		repair = acceptGap
	}
	if reason == ReasonPurged || reason == ReasonFileGone {
		repair += "; what the store still holds of it is copied by `" + backfillCommand + "`"
	}
	bare := *stop
	bare.Mend = ""
	return halt(reason, repair, fmt.Errorf("%w: %w", sentinel, &bare))
}
