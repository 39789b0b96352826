package mirror

import (
	"errors"
	"fmt"
)

// Sentinels under a Halt, for errors.Is.
var (
	// ErrCheckpointLost is returned when Kafka holds records of the store but no checkpoint.
	ErrCheckpointLost = errors.New("the mirror's checkpoint is lost")
	// ErrCheckpointFormat is returned when the checkpoint cannot be read by this program.
	ErrCheckpointFormat = errors.New("checkpoint cannot be read")
	// ErrCheckpointTopic is returned when the checkpoint topic is not fit to keep checkpoints.
	ErrCheckpointTopic = errors.New("checkpoint topic is not usable")
	// ErrCheckpointAhead is returned when the server lacks transactions that were copied.
	ErrCheckpointAhead = errors.New("the mirror is ahead of the server")
	// ErrServerChanged is returned when the DSN leads to another server than the one copied from.
	ErrServerChanged = errors.New("the database server changed")
	// ErrStoreChanged is returned when the DSN leads to another store than before.
	ErrStoreChanged = errors.New("the store changed")
	// ErrPurged is returned when the server no longer has binlog that was not copied yet.
	ErrPurged = errors.New("binlog that was not copied yet is purged")
	// ErrFileGone is returned when the server cannot open a binlog file that is still needed.
	ErrFileGone = errors.New("binlog file that was not copied yet is gone")
	// ErrPastEnd is returned when the checkpoint is behind the end of the server's binlog file.
	ErrPastEnd = errors.New("the mirror is past the end of the server's binlog")
	// ErrOrder is returned when a message's pos breaks the order of its shard.
	ErrOrder = errors.New("message position out of order")
	// ErrRow is returned for a row that is not a whole message.
	ErrRow = errors.New("message row is not usable")
	// ErrStream is returned when the binlog holds what cannot be copied safely.
	ErrStream = errors.New("binlog cannot be copied")
	// ErrTooLarge is returned for a record over its topic's limit.
	ErrTooLarge = errors.New("record is too large for its topic")
	// ErrTopicChanged is returned when a mirror topic was deleted or made anew.
	ErrTopicChanged = errors.New("mirror topic was deleted or made anew")
	// ErrTopicName is returned for a topic that cannot exist beside another in Kafka.
	ErrTopicName = errors.New("topic name is not possible in Kafka")
	// ErrConfig is wrapped by every error of New, and by refusals at start that a
	// change of configuration mends.
	ErrConfig = errors.New("configuration")
)

// Why a canald is not the active one. None of them is a Halt: it stands by.
var (
	// errSeatLost ends a turn.
	errSeatLost = errors.New("this canald was stopped, or cut off from Kafka, for so long that another one may take over")
	// errStanding is returned for what only the active one may do.
	errStanding = errors.New("another canald is active for this store")
	// errFenced is returned when Kafka takes no more from this producer.
	errFenced = errors.New("this canald was stopped, or cut off from Kafka, while it wrote, and Kafka gave its transaction up or let another canald take over")
)

// A Reason is the reason label of notify_mirror_halted.
type Reason string

// The reasons for which a mirror halts.
const (
	ReasonCheckpoint   Reason = "checkpoint"
	ReasonAhead        Reason = "ahead"
	ReasonServer       Reason = "server_changed"
	ReasonPurged       Reason = "purged"
	ReasonFileGone     Reason = "file_gone"
	ReasonPastEnd      Reason = "past_end"
	ReasonOrder        Reason = "order"
	ReasonRow          Reason = "missing_column"
	ReasonUnknownEvent Reason = "unknown_event"
	ReasonTooLarge     Reason = "too_large"
	ReasonTopic        Reason = "partitions_changed"
	ReasonConfig       Reason = "config"
)

var reasons = [...]Reason{
	ReasonCheckpoint, ReasonAhead, ReasonServer, ReasonPurged, ReasonFileGone, ReasonPastEnd, ReasonOrder,
	ReasonRow, ReasonUnknownEvent, ReasonTooLarge, ReasonTopic, ReasonConfig,
}

// A Halt is an error that only a person can clear. Its text is one line: what happened,
// where, and what to do.
type Halt struct {
	Reason Reason
	// Store is the store's name in the configuration.
	Store string
	// Err says what happened and where; it wraps one of the sentinels.
	Err error
	// Repair is what to do, with the command where there is one.
	Repair string
	// Ahead names what only the mirror holds, when that is why.
	Ahead *Ahead
}

// Error names the store, what happened, and what to do.
func (h *Halt) Error() string {
	return fmt.Sprintf("mirror of store %s stopped: %v; %s", h.Store, h.Err, h.Repair)
}

// Unwrap returns Err.
func (h *Halt) Unwrap() error { return h.Err }

// halt makes a Halt; the store's name is filled in by the Copier.
func halt(reason Reason, repair string, err error) *Halt {
	return &Halt{Reason: reason, Err: err, Repair: repair}
}

// haltf is halt with a sentinel and the particulars in one text.
func haltf(reason Reason, sentinel error, repair, format string, args ...any) *Halt {
	return halt(reason, repair, fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...)))
}
