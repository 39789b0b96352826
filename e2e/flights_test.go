package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"notifymirror/e2e/stage"
	"notifymirror/notifyd/client"
)

// flightsLimit bounds each stretch of the story.
const flightsLimit = 4 * time.Minute

// A file of 200,000 real records is published, each record a message; on the way the broker
// is killed once and the mirror twice. Two groups get every record, and the mirror has each
// once, byte by byte, in the order of the file within each key.
func TestRealRecordsSurviveKillsOfBrokerAndMirror(t *testing.T) {
	records := flights(t)
	s := stage.New(t)
	broker, canald, c := s.Running()
	s.Topic(c, "flights")
	groups := []*stage.Group{s.Listen(c, "boards", "flights"), s.Listen(c, "statistics", "flights")}

	number := map[string]int{} // by id
	for i := range records {
		number[records[i].ID] = i
	}
	var acked atomic.Int64
	published := make(chan error, 1)
	go func() { published <- publish(t, c, records, &acked) }()
	reach := func(n int64) {
		t.Helper()
		stage.Eventually(t, flightsLimit, "publishes acknowledged", func() error {
			if got := acked.Load(); got < n {
				return fmt.Errorf("%d of %d", got, n)
			}
			return nil
		})
	}
	reach(40_000)
	canald.Kill()
	canald.Launch()
	reach(80_000)
	broker.Kill()
	broker.Launch()
	reach(140_000)
	canald.Kill()
	canald.Launch()
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d records were acknowledged", acked.Load())

	for _, g := range groups {
		stage.Eventually(t, flightsLimit, "group "+g.Name+" has everything", func() error {
			if n, _ := g.Count(); n < len(records) {
				return fmt.Errorf("%d of %d", n, len(records))
			}
			return nil
		})
		for i := range records {
			if got, _ := g.Got(records[i].ID); !bytes.Equal(got.Body, records[i].Body) {
				t.Fatalf("group %s: record %d is %q, not %q", g.Name, i, got.Body, records[i].Body)
			}
		}
		_, deliveries := g.Count()
		t.Logf("group %s: %d deliveries", g.Name, deliveries)
	}

	r := s.Mirror("flights")
	r.Await(len(records), flightsLimit)
	r.Rest()
	seen := make([]int, len(records))
	last := map[string]int{}
	faults := complaints{t: t}
	for _, rec := range r.Records {
		i, known := number[stage.Header(rec, "notify-id")]
		if !known {
			t.Fatalf("the mirror has %q, which nobody published", rec.Value)
		}
		seen[i]++
		key := records[i].Key
		if !bytes.Equal(rec.Value, records[i].Body) || string(rec.Key) != key {
			faults.say("record %d is %q with key %q, not %q with %q", i, rec.Value, rec.Key, records[i].Body, key)
		}
		if before, seen := last[key]; seen && i <= before {
			faults.say("key %s: record %d is behind record %d", key, i, before)
		}
		last[key] = i
	}
	for i, n := range seen {
		if n != 1 {
			faults.say("record %d is %d times in the mirror", i, n)
		}
	}
	t.Logf("%d records in the mirror, %d keys", len(r.Records), len(last))
	s.AwaitEmpty(time.Minute)
}

// publish sends every record on one stream, and counts the answers.
func publish(t *testing.T, c *client.Client, records []client.Message, acked *atomic.Int64) error {
	p := c.NewPublisher(client.PublisherConfig{})
	ran := make(chan error, 1)
	go func() { ran <- p.Run(t.Context()) }()
	for _, m := range records {
		err := p.Send(t.Context(), m, client.PublishOptions{}, func(_ client.Published, err error) {
			if err == nil {
				acked.Add(1)
			} else if t.Context().Err() == nil {
				t.Errorf("record %s: %v", m.ID, err)
			}
		})
		if err != nil {
			return err
		}
	}
	p.Close()
	return <-ran
}

// flights is the data set as messages: the exact bytes of each record, keyed by distance.
func flights(t *testing.T) []client.Message {
	t.Helper()
	path := os.Getenv("NOTIFY_TEST_FLIGHTS")
	if path == "" {
		script := exec.Command("../deploy/install/flights.sh")
		script.Stderr = os.Stderr
		out, err := script.Output()
		if err != nil {
			t.Fatalf("flights-200k.json is needed: deploy/install/flights.sh fetches it (%v), or NOTIFY_TEST_FLIGHTS names it", err)
		}
		path = strings.TrimSpace(string(out))
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(file, &raw); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	messages := make([]client.Message, len(raw))
	at := 0
	for i, record := range raw {
		// The bytes are the file's own, record behind record.
		n := bytes.Index(file[at:], record)
		if n < 0 || n > 3 {
			t.Fatalf("%s: record %d is not at byte %d", path, i, at)
		}
		at += n + len(record)
		var fields struct{ Distance json.Number }
		if err := json.Unmarshal(record, &fields); err != nil || fields.Distance == "" {
			t.Fatalf("%s: record %d: %v: %s", path, i, err, record)
		}
		id, err := uuid.NewV7()
		if err != nil {
			t.Fatal(err)
		}
		messages[i] = client.Message{ID: id.String(), Topic: "flights", Key: fields.Distance.String(), Body: record}
	}
	if len(messages) < 200_000 {
		t.Fatalf("%s has %d records", path, len(messages))
	}
	return messages
}
