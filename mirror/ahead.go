package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"

	"notifymirror/canal"
	"notifymirror/mirror/record"
)

const (
	// aheadListed and aheadSaid bound how many messages that only the mirror has are listed in the
	// status, and named in the text of the halt.
	aheadListed = 100
	aheadSaid   = 5
	// aheadLimit bounds how many messages are compared, and aheadPatience how long that may take.
	aheadLimit    = 200_000
	aheadPatience = time.Minute
)

// Ahead are the messages that the mirror holds and the store, as its server is now, never had.
type Ahead struct {
	Count int `json:"count"`
	// Messages are the first 100 of them, in the order of their commits.
	Messages []AheadMessage `json:"messages"`
}

// AheadMessage is one of them.
type AheadMessage struct {
	ID    uuid.UUID `json:"id"`
	Topic string    `json:"topic"`
	// Generation and Seq are those of notify-source and notify-seq.
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
	// Partition is the one of Kafka's topic that it is in.
	Partition int32 `json:"partition"`
}

// String says how many they are, and names the first.
func (a Ahead) String() string {
	if a.Count == 0 {
		return "the mirror holds no message that the store has not"
	}
	var names []string
	for _, m := range a.Messages[:min(aheadSaid, len(a.Messages))] {
		names = append(names, fmt.Sprintf("%s of %s (seq %d, partition %d)", m.ID, m.Topic, m.Seq, m.Partition))
	}
	more := ""
	if a.Count > len(names) {
		more = fmt.Sprintf(", and %d more: notify mirror status -o json lists %d", a.Count-len(names), len(a.Messages))
	}
	return fmt.Sprintf("messages that only the mirror holds: %d: %s%s", a.Count, strings.Join(names, ", "), more)
}

// nameAhead adds to a halt for a mirror that is ahead of the server which messages that are.
func (c *Copier) nameAhead(ctx context.Context, s *start, err error) error {
	h, ok := errors.AsType[*Halt](err)
	if !ok || h.Reason != ReasonAhead {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, aheadPatience)
	defer cancel()
	ahead, unknown := c.ahead(ctx, s)
	if unknown != nil {
		h.Err = fmt.Errorf("%w; which messages only the mirror holds cannot be told: %w", h.Err, unknown)
		return h
	}
	h.Ahead = &ahead
	h.Err = fmt.Errorf("%w; %s", h.Err, ahead)
	return h
}

// A stamped message is one INSERT: its id, which a producer may give again, with the instant of
// its birth.
type stamped struct {
	id   uuid.UUID
	born int64
}

// ahead compares the last messages in the mirror with those in the server's binlog: it goes back in
// the binlog until it meets a message of the mirror. What the mirror holds behind that one and
// the binlog does not is ahead.
func (c *Copier) ahead(ctx context.Context, s *start) (Ahead, error) {
	shared, err := s.info.goOn(s.at.position())
	if err != nil {
		return Ahead{}, err
	}
	before := s.at.GTIDs
	nowhere := errors.New("none of them is in the server's binlog: it was purged, or written with log_replica_updates (MariaDB: log_slave_updates) off")
	for back := uint64(1); ; back *= 16 {
		from, err := shared.Back(back)
		if err == nil {
			from, err = s.info.goOn(from)
		}
		if err != nil {
			return Ahead{}, err
		}
		if from.GTIDs == before {
			return Ahead{}, nowhere
		}
		before = from.GTIDs
		logged, earliest, err := c.logged(ctx, from, s.info.position)
		switch {
		case ctx.Err() != nil:
			return Ahead{}, ctx.Err()
		case err != nil: // on MariaDB the number before may be another server's, and that place is not found
			nowhere = err
			continue
		case len(logged) == 0:
			continue
		}
		held, err := s.held(ctx, earliest)
		if err != nil {
			return Ahead{}, err
		}
		if i := slices.IndexFunc(held, func(m heldMessage) bool { return logged[m.stamped] }); i >= 0 {
			return missing(held[i:], logged), nil
		}
	}
}

// missing are the messages that were not logged, each once.
func missing(held []heldMessage, logged map[stamped]bool) (a Ahead) {
	seen := map[stamped]bool{}
	for _, m := range held {
		if logged[m.stamped] || seen[m.stamped] {
			continue
		}
		seen[m.stamped] = true
		if a.Count++; a.Count <= aheadListed {
			a.Messages = append(a.Messages, m.AheadMessage)
		}
	}
	return a
}

// logged reads the messages in the server's binlog between two positions. earliest is the birth of
// the first one born.
func (c *Copier) logged(ctx context.Context, from, to canal.Position) (found map[stamped]bool, earliest int64, err error) {
	found = map[stamped]bool{}
	rows := rowDecoder{schema: c.dsn.DBName}
	for t, err := range c.openProbe(from).txns(ctx) {
		if err != nil {
			return nil, 0, err
		}
		if t.kind == canal.Rows {
			for row, err := range t.rows {
				if err != nil {
					return nil, 0, err
				}
				m, err := rows.message(row)
				if err != nil {
					return nil, 0, err
				}
				if found[stamped{m.id, m.bornAt}] = true; len(found) > aheadLimit {
					return nil, 0, fmt.Errorf("there are more than %d to compare", aheadLimit)
				}
				if earliest == 0 || m.bornAt < earliest {
					earliest = m.bornAt
				}
			}
		}
		if more, err := to.Minus(t.after()); t.kind == canal.Heartbeat || err != nil || more == "" {
			return found, earliest, err
		}
	}
	return nil, 0, cmp.Or(ctx.Err(), errors.New("binlog stream: ended"))
}

// A heldMessage is a message in the mirror.
type heldMessage struct {
	stamped
	AheadMessage
}

// held reads the store's messages in the mirror that were committed at the instant born, in
// microseconds, or later, in the order of their commits.
func (s *start) held(ctx context.Context, born int64) (held []heldMessage, err error) {
	const slack = 2 * time.Second // MariaDB's commit times are cut to whole seconds
	since := time.UnixMicro(born).Add(-slack).UnixMilli()
	for name, t := range s.topics {
		for p := range t.Partitions {
			if held, err = s.heldIn(ctx, held, name, p, since); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(held, func(a, b heldMessage) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Seq, b.Seq))
	})
	return held, nil
}

// heldIn appends those of one partition, from a time on.
func (s *start) heldIn(ctx context.Context, held []heldMessage, topic string, p int32, since int64) ([]heldMessage, error) {
	from, err := s.kafka.client.GetOffset(topic, p, since)
	if err != nil || from < 0 { // nothing is as late
		return held, err
	}
	_, end, err := s.kafka.partitionEnds(topic, p)
	if err != nil {
		return held, err
	}
	_, err = s.kafka.readCommitted(ctx, topic, p, from, end, func(r *sarama.Record) error {
		m, err := record.Decode(record.Record{Key: r.Key, Value: r.Value, Headers: headersOf(r)})
		if err != nil || m.Source.Store != s.at.Store {
			return nil
		}
		held = append(held, heldMessage{stamped{m.ID, m.BornAt.UnixMicro()},
			AheadMessage{ID: m.ID, Topic: m.Topic, Generation: m.Source.Generation, Seq: m.Seq, Partition: p}})
		if len(held) > aheadLimit {
			return fmt.Errorf("there are more than %d to compare", aheadLimit)
		}
		return nil
	})
	return held, err
}
