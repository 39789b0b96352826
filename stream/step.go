package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
)

// A Step is what one call of Process makes of a batch: records to write, and changes of
// the partition's state. It is committed whole, with the batch's offsets, or not at all.
type Step struct {
	state   map[string][]byte // as committed
	changes map[string][]byte // nil: deleted
	out     []output
}

// Get is the value of a key in the partition's state as this step has changed it; nil
// when there is none. It must not be changed.
func (s *Step) Get(key string) []byte {
	if v, ok := s.changes[key]; ok {
		return v
	}
	return s.state[key]
}

// Put sets the value of a key; it is a record of the state topic, so that key and value
// must fit into one. Keys that begin with a zero byte are the processor's own. A nil value is
// as an empty one. The bytes are the step's from now on.
func (s *Step) Put(key string, value []byte) {
	if value == nil {
		value = []byte{}
	}
	s.changes[key] = value
}

// Delete takes a key out of the state.
func (s *Step) Delete(key string) { s.changes[key] = nil }

// Emit writes a record to a topic by its name in Kafka, which must exist; the key decides
// on the partition as the mirror's does. The bytes are the step's from now on.
func (s *Step) Emit(topic string, key, value []byte, headers ...record.Header) {
	r := sarama.Record{Key: key, Value: value}
	for _, h := range headers {
		r.Headers = append(r.Headers, &sarama.RecordHeader{Key: []byte(h.Name), Value: []byte(h.Value)})
	}
	s.out = append(s.out, output{topic, byKey, r})
}

// task is a partition that was taken over: where to go on, its state, and its writer.
type task struct {
	p     *Processor
	place place
	origin
	note   string
	state  map[string][]byte
	size   int // of the state
	writer *txnWriter
}

// process handles a batch: the step, and then its transaction.
func (t *task) process(ctx context.Context, batch []Record) error {
	step := &Step{state: t.state, changes: map[string][]byte{}}
	if err := t.p.cfg.Process(ctx, step, batch); err != nil {
		if _, ok := errors.AsType[*atError](err); ok {
			return fmt.Errorf("At: a processor commits a batch as a whole: %v", err)
		}
		return err
	}
	size := t.sizeWith(step.changes)
	if size > t.p.cfg.MaxState {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrStateTooLarge, size, t.p.cfg.MaxState)
	}
	if err := ctx.Err(); err != nil {
		return err // the partition may be another's already
	}
	next := batch[len(batch)-1].Offset + 1
	if err := t.commit(ctx, step, next); err != nil {
		return fmt.Errorf("%w: %w", errNotCommitted, err)
	}
	for key, value := range step.changes {
		if value == nil {
			delete(t.state, key)
		} else {
			t.state[key] = value
		}
	}
	t.size = size
	t.measure()
	return nil
}

// labels are those of the partition's metrics.
func (t *task) labels() []string {
	return []string{t.p.cfg.Group, t.p.c.topics[t.place.kafka], strconv.Itoa(int(t.place.number))}
}

// measure tells the metrics how large the state is.
func (t *task) measure() {
	m, labels := t.p.c.metrics, t.labels()
	m.stateEntries.WithLabelValues(labels...).Set(float64(len(t.state)))
	m.stateBytes.WithLabelValues(labels...).Set(float64(t.size))
}

// letGo ends what is said about the state.
func (t *task) letGo() {
	m, labels := t.p.c.metrics, t.labels()
	m.stateEntries.DeleteLabelValues(labels...)
	m.stateBytes.DeleteLabelValues(labels...)
}

// sizeWith is what the state takes with some changes.
func (t *task) sizeWith(changes map[string][]byte) int {
	size := t.size
	for key, value := range changes {
		if old, ok := t.state[key]; ok {
			size -= len(key) + len(old)
		}
		if value != nil {
			size += len(key) + len(value)
		}
	}
	return size
}

// commit writes a step and the offset to go on at in one transaction.
func (t *task) commit(ctx context.Context, step *Step, next int64) error {
	out := step.out
	for _, key := range slices.Sorted(maps.Keys(step.changes)) {
		out = append(out, t.change(key, step.changes[key]))
	}
	out = append(out, t.change(positionKey, formatPosition(next, t.note)))
	return t.writer.transaction(ctx, out, next, t.note)
}

// change is a record of the state.
func (t *task) change(key string, value []byte) output {
	return output{t.p.cfg.State, t.place.number, sarama.Record{Key: []byte(key), Value: value}}
}
