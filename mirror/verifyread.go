package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/canal"
	"notifymirror/mirror/record"
)

// This file reads both sides of a verification.

// wanted tells whether a minute is compared.
func (v *verification) wanted(minute int64) bool {
	return minute >= v.since && (v.until == 0 || minute < v.until)
}

// later begins the comparison later than was asked for.
func (v *verification) later(minute int64, format string, args ...any) {
	if minute <= v.since {
		return
	}
	v.since = minute
	v.minutes.before(minute)
	v.notes = append(v.notes, fmt.Sprintf(format, args...)+": nothing before "+timeOf(minute).Format(time.RFC3339)+" was compared")
}

// readBinlog notes what was committed up to the checkpoint.
func (v *verification) readBinlog(ctx context.Context) error {
	from, err := v.copier.startBefore(ctx, timeOf(v.since).Add(-startMargin))
	if err != nil {
		return sourceError(err)
	}
	gone, err := from.Minus(canal.Position{Flavor: v.info.flavor, GTIDs: v.info.installed})
	if err != nil {
		return err
	}
	copied, err := v.at.position().Holds()
	if err != nil {
		return err
	}
	rows := rowDecoder{schema: v.copier.dsn.DBName}
	for t, err := range v.copier.openProbe(from).txns(ctx) {
		if err != nil {
			return sourceError(err)
		}
		if t.kind != canal.Heartbeat && gone != "" {
			gone = ""
			if first := minuteOf(t.commitTime); first >= v.since {
				v.later(first+1, "the binlog that the server still has begins at %s", t.commitTime.UTC().Format(time.RFC3339))
			}
		}
		if t.kind != canal.Heartbeat && copied(t.gtid) {
			if err := v.commits(t, &rows, ^uint64(0)); err != nil {
				return err
			}
			continue
		}
		if done, err := v.beyond(t, &rows); done || err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.New("binlog stream: ended")
}

// beyond takes what is not in the checkpoint's position, and tells whether all is read that is:
// behind it only the transaction that is half copied counts, and foreign ones may come before that.
func (v *verification) beyond(t txn, rows *rowDecoder) (done bool, err error) {
	if t.kind != canal.Heartbeat && t.gtid == v.at.OpenGTID {
		return true, v.commits(t, rows, v.at.OpenCopied)
	}
	left, err := v.at.position().Minus(t.after())
	return left == "" && (t.kind == canal.Heartbeat || v.at.OpenGTID == ""), err
}

// commits notes the first messages of a transaction, most at most.
func (v *verification) commits(t txn, rows *rowDecoder, most uint64) error {
	minute := minuteOf(t.commitTime)
	if t.kind != canal.Rows || !v.wanted(minute) {
		return nil
	}
	for row, err := range t.rows {
		if err != nil {
			return sourceError(err)
		}
		m, err := rows.message(row)
		if err != nil {
			return halt(ReasonRow, rowRepair, fmt.Errorf("transaction %s: %w", t.gtid, err))
		}
		if most == 0 {
			return nil
		}
		if most--; !m.mirrored {
			continue
		}
		s := sighting{minute: minute, id: m.id, place: v.place(record.TopicName(v.copier.config.TopicPrefix, string(m.topic)), -1)}
		v.minutes.commit(s)
		if err := v.committed.add(s); err != nil {
			return err
		}
	}
	return nil
}

// A topicPartition is a place in Kafka; the partition is -1 where it is not known.
type topicPartition struct {
	topic     string
	partition int32
}

// place is the number of a place.
func (v *verification) place(topic string, partition int32) int32 {
	at := topicPartition{topic, partition}
	n, known := v.numbers[at]
	if !known {
		n = int32(len(v.places))
		v.numbers[at], v.places = n, append(v.places, at)
	}
	return n
}

// readMirror notes the store's records, partition by partition.
func (v *verification) readMirror(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(v.topics)) {
		infos, err := v.kafka.describe(name)
		if err != nil {
			return err
		}
		for p := range infos[name].partitions {
			if err := v.readPartition(ctx, name, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verification) readPartition(ctx context.Context, name string, p int32) error {
	first, end, err := v.kafka.partitionEnds(name, p)
	if err != nil {
		return err
	}
	from, err := v.kafka.client.GetOffset(name, p, timeOf(v.since).UnixMilli())
	if err != nil {
		return fmt.Errorf("kafka topic %s partition %d: offsets: %w", name, p, err)
	}
	if from < 0 { // nothing is that young
		return nil
	}
	cut := first > 0 && from <= first
	place := v.place(name, p)
	var last record.Source
	var lastSeq uint64
	_, err = v.kafka.readBatches(ctx, name, p, from, end, func(b *sarama.RecordBatch, r *sarama.Record) error {
		at := b.FirstTimestamp.Add(r.TimestampDelta)
		if minute := minuteOf(at); cut && minute >= v.since {
			v.later(minute+1, "partition %d of %s begins at %s", p, name, at.UTC().Format(time.RFC3339))
		}
		cut = false
		s := sighting{minute: minuteOf(at), place: place, offset: b.FirstOffset + r.OffsetDelta}
		m, err := record.Decode(record.Record{Key: r.Key, Value: r.Value, Headers: headersOf(r), Timestamp: at})
		if err != nil {
			v.blame(Unreadable, s)
			return nil
		}
		if m.Source.Store != v.at.Store || !v.at.reaches(m.Source.Generation, m.Seq) {
			return nil
		}
		s.id, s.generation, s.seq = m.ID, m.Source.Generation, m.Seq
		if m.Source.Generation < last.Generation || m.Source == last && m.Seq <= lastSeq {
			v.blame(Disordered, s)
		} else {
			last, lastSeq = m.Source, m.Seq
		}
		if !v.wanted(s.minute) {
			return nil
		}
		v.minutes.mirror(s)
		return v.mirrored.add(s)
	})
	return err
}

// reaches tells whether the checkpoint is behind a record.
func (c *checkpoint) reaches(generation, seq uint64) bool {
	return generation < c.Generation || generation == c.Generation && seq <= c.Seq
}

// blame names a record of a minute that is compared.
func (v *verification) blame(what Fault, s sighting) {
	if !v.wanted(s.minute) {
		return
	}
	if len(v.wrong) == mostNamed {
		v.more = true
		return
	}
	v.wrong = append(v.wrong, v.difference(what, s))
}

func (v *verification) difference(what Fault, s sighting) Difference {
	at := v.places[s.place]
	d := Difference{What: what, Minute: timeOf(s.minute), Topic: at.topic, Partition: at.partition, Offset: s.offset, Generation: s.generation, Seq: s.seq}
	if what == Missing {
		d.Offset = -1
	}
	if what != Unreadable {
		d.ID = s.id.String()
	}
	return d
}
