package mirror

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"notifymirror/canal"
)

// The records of a checkpoint topic. It is compacted: of each key the last record counts,
// and only those of committed Kafka transactions.
//
//	key "checkpoint"        value: a checkpoint, one JSON object as below
//	key "topic/" + NAME     value: a topicRecord of the Kafka topic NAME, one JSON object
//
// Both objects have "v", the version of the layout, now 1. A reader refuses another
// version and fields that it does not know.
const (
	checkpointKey    = "checkpoint"
	topicKeyPrefix   = "topic/"
	checkpointFormat = 1
)

// checkpoint says what of a store's binlog is in Kafka. It is written in the same Kafka
// transaction as the records that it speaks of.
type checkpoint struct {
	V int `json:"v"`
	// Store is the store's id; Generation and Seq are those of notify-source and notify-seq.
	Store      string `json:"store"`
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
	// Flavor and GTIDs are the position behind the last transaction copied whole.
	Flavor string `json:"flavor"`
	GTIDs  string `json:"gtids"`
	// OpenGTID is a transaction of which only the first OpenCopied message inserts are
	// copied; empty when there is none.
	OpenGTID   string `json:"open_gtid,omitempty"`
	OpenCopied uint64 `json:"open_copied,omitempty"`
	// Shards is the last pos of each shard, 0 for none. A negative one, -1 - P, says only that
	// the next is above P: -1 where nothing is known.
	Shards []int64 `json:"shards"`
	// Backfill is what is copied from the tables before the binlog is read on.
	Backfill backfill `json:"backfill,omitzero"`
	// lost tells that it stands for one that Kafka has no more: only store and generation are known.
	lost bool
	// Server is the identity of the server copied from.
	Server string `json:"server"`
	// Last describes the last transaction with messages.
	Last lastTxn `json:"last"`
	// Writer is the name of the canald that wrote it; WrittenAt is its clock, microseconds.
	Writer    string `json:"writer"`
	WrittenAt int64  `json:"written_at"`
}

// lastTxn is a transaction's fingerprint: enough to tell on another server whether the
// transaction of this GTID is the same one.
type lastTxn struct {
	GTID string `json:"gtid,omitempty"`
	// CommittedAt is the commit time in microseconds since 1970 UTC.
	CommittedAt int64 `json:"committed_at,omitempty"`
	// Messages counts its message inserts so far, and Hash is the FNV-1a 64 of their
	// shard (2 bytes), pos (8 bytes) and id (16 bytes), big-endian, in order.
	Messages uint64 `json:"messages,omitempty"`
	Hash     uint64 `json:"hash,omitempty"`
}

// topicRecord says how a Kafka topic's records are partitioned.
type topicRecord struct {
	V int `json:"v"`
	// Topic is the name in Kafka, with the prefix, and ID the topic's id there.
	Topic string `json:"topic"`
	ID    string `json:"id"`
	// Partitions is the count that keys are hashed over, from the message of Seq + 1 on
	// in that generation.
	Partitions int32  `json:"partitions"`
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
}

// savedState is what a checkpoint topic says when all its committed records are applied.
type savedState struct {
	checkpoint *checkpoint
	topics     map[string]topicRecord
}

func encodeCheckpoint(c checkpoint) []byte {
	c.V = checkpointFormat
	return mustJSON(c)
}

func encodeTopic(t topicRecord) (key, value []byte) {
	t.V = checkpointFormat
	return []byte(topicKeyPrefix + t.Topic), mustJSON(t)
}

// mustJSON marshals one of the structs above; they hold only numbers and text.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("mirror: " + err.Error())
	}
	return b
}

// apply takes a committed record of a checkpoint topic over. The error wraps ErrCheckpointFormat.
func (s *savedState) apply(key, value []byte) error {
	name := string(key)
	switch {
	case name == checkpointKey:
		var c checkpoint
		if err := decodeStrict(value, &c); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrCheckpointFormat, name, err)
		}
		if err := c.check(); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrCheckpointFormat, name, err)
		}
		s.checkpoint = &c
	case strings.HasPrefix(name, topicKeyPrefix):
		var t topicRecord
		if err := decodeStrict(value, &t); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrCheckpointFormat, name, err)
		}
		if t.Topic != name[len(topicKeyPrefix):] || t.Partitions < 1 || t.ID == "" {
			return fmt.Errorf("%w: key %q: topic %q with %d partitions", ErrCheckpointFormat, name, t.Topic, t.Partitions)
		}
		if s.topics == nil {
			s.topics = make(map[string]topicRecord)
		}
		s.topics[t.Topic] = t
	default:
		return fmt.Errorf("%w: unknown key %q", ErrCheckpointFormat, name)
	}
	return nil
}

// position is where the binlog is read on.
func (c *checkpoint) position() canal.Position {
	return canal.Position{Flavor: canal.Flavor(c.Flavor), GTIDs: c.GTIDs}
}

// risk says what is lost or at risk when the binlog cannot be read on from a checkpoint;
// empty for a reason that has nothing to do with it.
func (c *checkpoint) risk(reason Reason) string {
	copied := fmt.Sprintf("seq %d of generation %d", c.Seq, c.Generation)
	if us := c.Last.CommittedAt; us > 0 {
		copied += ", committed at " + time.UnixMicro(us).UTC().Format(time.RFC3339)
	}
	switch reason {
	case ReasonPurged, ReasonFileGone:
		return "lost to the mirror: the messages in it; the last one copied is " + copied
	case ReasonPastEnd, ReasonAhead:
		return "at risk: messages that the mirror holds and the store does not, and those that the store commits in their place; the last one copied is " + copied
	case ReasonServer:
		return "at risk: messages that only one of the two servers has; the last one copied is " + copied
	}
	return ""
}

func (c *checkpoint) check() error {
	switch {
	case c.Store == "" || c.Generation == 0 || c.Server == "" || c.Flavor == "":
		return errors.New("a field is empty")
	case len(c.Shards) == 0:
		return errors.New("no shards")
	case (c.OpenGTID == "") != (c.OpenCopied == 0):
		return errors.New("half an open transaction")
	case c.Backfill.Until != nil && len(c.Backfill.Until) != len(c.Shards):
		return errors.New("a backfill of other shards")
	}
	return nil
}

// decodeStrict reads one JSON object of a known version and nothing else.
func decodeStrict(value []byte, into any) error {
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(value, &version); err != nil {
		return err
	}
	if version.V != checkpointFormat {
		return fmt.Errorf("version %d, this program reads %d", version.V, checkpointFormat)
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text behind the object")
	}
	return nil
}
