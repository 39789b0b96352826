package kafkago_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror/embedded"
	"notifymirror/mirror/record"
	"notifymirror/stream/kafkago"
)

// kafkaEnv names a real Kafka, host:port, to run against; without it one is embedded.
const kafkaEnv = "NOTIFY_TEST_KAFKA"

func broker(t *testing.T) string {
	t.Helper()
	if addr := os.Getenv(kafkaEnv); addr != "" {
		return addr
	}
	k, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k.Addrs()[0]
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// writer writes as the mirror does.
type writer struct {
	t      *testing.T
	topic  string // Kafka's name
	client *kgo.Client
}

func newWriter(t *testing.T, addr string) *writer {
	t.Helper()
	w := &writer{t: t, topic: fmt.Sprintf("notify.k%08x", rand.Uint32())}
	var err error
	if w.client, err = kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("tx-"+w.topic), kgo.DefaultProduceTopic(w.topic)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.Close)
	if _, err := kadm.NewClient(w.client).CreateTopic(deadline(t), 1, 1, nil, w.topic); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *writer) transaction(end kgo.TransactionEndTry, records ...*kgo.Record) {
	w.t.Helper()
	ctx := deadline(w.t)
	if err := w.client.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.EndTransaction(ctx, end); err != nil {
		w.t.Fatal(err)
	}
}

// message is the record of a message; its body tells its generation and seq.
func message(generation int, seq uint64, id byte) *kgo.Record {
	now := time.Now()
	r := record.Encode(record.Message{
		ID: uuid.UUID{15: id}, Topic: "k", Body: fmt.Appendf(nil, "%d/%d", generation, seq), BornAt: now, CommitTime: now,
		Source: record.Source{Store: "5c8b5d0e-5b0e-4f0e-9d0e-5c8b5d0e5b0e", Generation: uint64(generation)}, Seq: seq,
	})
	k := &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
	}
	return k
}

func bare(t *testing.T, addr, topic string) *kafka.Reader {
	t.Helper()
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{addr}, Topic: topic, IsolationLevel: kafka.ReadCommitted, MaxWait: 100 * time.Millisecond,
	})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestTheBareClientHandsOutWhatTheReaderFilters(t *testing.T) {
	addr := broker(t)
	w := newWriter(t, addr)
	w.transaction(kgo.TryCommit, message(1, 1, 1), message(1, 2, 2))
	w.transaction(kgo.TryAbort, message(1, 3, 3), message(1, 4, 4))
	w.transaction(kgo.TryCommit, message(1, 3, 3), message(1, 4, 4), message(1, 5, 5)) // again, as the mirror does
	w.transaction(kgo.TryCommit, message(2, 1, 5), message(2, 2, 6))                   // a new generation repeats a message
	w.transaction(kgo.TryCommit, message(2, 3, 7))

	// To the last message: 10 records and 4 markers, where 8 were committed.
	ctx := deadline(t)
	reader := bare(t, addr, w.topic)
	var got []string
	for len(got) == 0 || got[len(got)-1] != "2/3" {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		body := string(m.Value)
		if len(m.Headers) == 0 {
			body = "marker"
		}
		got = append(got, body)
	}
	const wrong = "1/1 1/2 marker 1/3 1/4 marker 1/3 1/4 1/5 marker 2/1 2/2 marker 2/3"
	if strings.Join(got, " ") != wrong {
		t.Errorf("the bare client hands out %q, and not the wrong %q: has it been mended?", got, wrong)
	}

	filtered := kafkago.New(bare(t, addr, w.topic), kafkago.Config{})
	got = nil
	for len(got) == 0 || got[len(got)-1] != "2/3" {
		m, err := filtered.Fetch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(m.Body))
		if m.Record.Topic != w.topic || m.Source.Generation == 0 {
			t.Errorf("message %+v", m)
		}
	}
	if strings.Join(got, " ") != "1/1 1/2 1/3 1/4 1/5 2/2 2/3" {
		t.Errorf("filtered %q", got)
	}
}

// script hands out records one after another.
type script []kafka.Message

func (s *script) FetchMessage(context.Context) (kafka.Message, error) {
	if len(*s) == 0 {
		return kafka.Message{}, errors.New("the end")
	}
	m := (*s)[0]
	*s = (*s)[1:]
	return m, nil
}

func (s *script) add(offset int64, r *kgo.Record) {
	m := kafka.Message{Topic: "notify.k", Offset: offset, Key: r.Key, Value: r.Value, Time: r.Timestamp}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	*s = append(*s, m)
}

func TestRecordsThatTheMirrorDidNotWriteAreAnErrorUnlessSkipped(t *testing.T) {
	var s script
	s.add(0, message(1, 1, 1))
	s.add(1, &kgo.Record{Key: []byte{0, 0, 0, 1}, Value: []byte("by hand")}) // not quite a marker
	s.add(2, message(1, 2, 2))
	again := append(script(nil), s...)
	r := kafkago.New(&s, kafkago.Config{})
	if m, err := r.Fetch(t.Context()); err != nil || m.Seq != 1 {
		t.Errorf("%v, error %v", m, err)
	}
	if _, err := r.Fetch(t.Context()); !errors.Is(err, record.ErrNotMirrored) || !strings.Contains(err.Error(), "offset 1") {
		t.Errorf("error %v", err)
	}
	if m, err := r.Fetch(t.Context()); err != nil || m.Seq != 2 {
		t.Errorf("%v, error %v", m, err)
	}
	r = kafkago.New(&again, kafkago.Config{SkipForeign: true})
	for seq := range uint64(2) {
		if m, err := r.Fetch(t.Context()); err != nil || m.Seq != seq+1 {
			t.Errorf("%v, error %v", m, err)
		}
	}
	if _, err := r.Fetch(t.Context()); err == nil || err.Error() != "the end" {
		t.Errorf("error %v", err)
	}
}

func TestOnlyTheLastIdsAreRemembered(t *testing.T) {
	var s script
	for i, id := range []byte{1, 2, 3, 1, 2, 3, 3} { // each in a generation of its own
		s.add(int64(i), message(i+1, 1, id))
	}
	r := kafkago.New(&s, kafkago.Config{Remember: 2})
	var got []byte
	for {
		m, err := r.Fetch(t.Context())
		if err != nil {
			break
		}
		got = append(got, m.ID[15])
	}
	if fmt.Sprint(got) != "[1 2 3 1 2 3]" {
		t.Errorf("handed out %v", got)
	}
}
