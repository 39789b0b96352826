package notifyd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"notifymirror/notifyd"
	"notifymirror/notifyd/client"
)

// post calls a method as curl would.
func (s *stage) post(addr, method, body string) (code int, answer map[string]any) {
	s.t.Helper()
	res, err := http.Post("http://"+addr+"/notify.v1."+method, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if err := json.Unmarshal(text, &answer); err != nil {
		s.t.Fatalf("%s: %q is not JSON", method, text)
	}
	return res.StatusCode, answer
}

func TestPlainJSONOverHTTPPublishes(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.AutoCreateTopics = true })
	code, answer := s.post(addr, "Messaging/Publish", `{"message":{"topic":"orders","key":"42","text":"hello"}}`)
	if code != http.StatusOK {
		t.Fatalf("status %d: %v", code, answer)
	}
	if _, err := uuid.Parse(fmt.Sprint(answer["id"])); err != nil {
		t.Errorf("id %v is not a UUID", answer["id"])
	}
}

func TestEachViolationNamesFieldSizeAndLimitAndStoresNothing(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxBodyBytes = 1000 })
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	headers := map[string]string{}
	for i := range 65 {
		headers[fmt.Sprint("h", i)] = ""
	}
	for field, m := range map[string]client.Message{
		"topic":   {Topic: strings.Repeat("t", 128)},
		"key":     {Topic: "orders", Key: strings.Repeat("k", 256)},
		"body":    {Topic: "orders", Body: make([]byte, 1001)},
		"headers": {Topic: "orders", Headers: headers},
	} {
		_, err := c.Publish(t.Context(), m, client.PublishOptions{})
		var e *client.Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: %v", field, err)
		}
		if e.Reason != client.ReasonTooLarge || e.Field != field || e.Size <= e.Limit || e.Limit == 0 || e.Retryable {
			t.Errorf("%s: got %+v", field, e)
		}
	}
	if n := s.rows("message"); n != 0 {
		t.Errorf("%d messages stored, want 0", n)
	}
}

func TestARequestTooLargeForAnyBodyIsRefusedUnread(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxBodyBytes = 1000 })
	code, answer := s.post(addr, "Messaging/Publish", `{"message":{"topic":"orders","text":"`+strings.Repeat("x", 2<<20)+`"}}`)
	if code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(answer["message"]), "body: ") {
		t.Errorf("status %d: %v", code, answer)
	}
}

func TestAnUnknownTopicIsRefusedWithTheCommandThatCreatesIt(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	_, err := s.client(addr).Publish(t.Context(), client.Message{Topic: "orders"}, client.PublishOptions{})
	var e *client.Error
	if !errors.As(err, &e) || e.Reason != client.ReasonUnknownTopic || !strings.Contains(e.Message, "notify topic create orders") {
		t.Fatalf("got %v", err)
	}
	if n := s.count("SELECT COUNT(*) FROM registry_topic"); n != 0 {
		t.Errorf("%d topics declared, want 0", n)
	}
}

// publisher runs a pipelined publisher until the test ends.
func (s *stage) publisher(c *client.Client) *client.Publisher {
	s.t.Helper()
	p := c.NewPublisher(client.PublisherConfig{})
	done := make(chan error, 1)
	go func() { done <- p.Run(s.t.Context()) }()
	s.t.Cleanup(func() { <-done })
	return p
}

func TestAStreamKeepsTheOrderOfEachKey(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g") // nobody consumes: rows stay
	p := s.publisher(c)
	const keys, each = 7, 200
	var wg sync.WaitGroup
	for i := range keys * each {
		wg.Add(1)
		m := client.Message{Topic: "orders", Key: fmt.Sprint(i % keys), Body: fmt.Append(nil, i/keys)}
		if err := p.Send(t.Context(), m, client.PublishOptions{}, func(_ client.Published, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	next := map[string]int{}
	for i := range 8 {
		rows, err := s.db.Query(fmt.Sprintf("SELECT msg_key, body FROM message_%02d ORDER BY pos", i))
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var key, body []byte
			if err := rows.Scan(&key, &body); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint(next[string(key)]); !bytes.Equal(body, []byte(want)) {
				t.Fatalf("key %s: body %s, want %s", key, body, want)
			}
			next[string(key)]++
		}
	}
	for k := range keys {
		if next[fmt.Sprint(k)] != each {
			t.Errorf("key %d: %d messages, want %d", k, next[fmt.Sprint(k)], each)
		}
	}
}

func TestARepeatedIdempotencyKeyStoresNothingAndReturnsTheFirstID(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	other, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	clients := []*client.Client{c, s.client(other)}
	s.until("both own shards", func() bool {
		return s.count("SELECT COUNT(DISTINCT owner) FROM lease WHERE expires_at > 0") == 2
	})
	const tries = 60
	ids := make(chan string, tries)
	var wg sync.WaitGroup
	fresh := 0
	var mu sync.Mutex
	for i := range tries { // unkeyed: they meet in one batch, in other shards, at both brokers
		wg.Add(1)
		go func() {
			defer wg.Done()
			p, err := clients[i%2].Publish(t.Context(), client.Message{Topic: "orders", Body: []byte("once")}, client.PublishOptions{IdempotencyKey: "k"})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if !p.Duplicate {
				fresh++
			}
			ids <- p.ID
		}()
	}
	wg.Wait()
	close(ids)
	all := map[string]bool{}
	for id := range ids {
		all[id] = true
	}
	if len(all) != 1 || fresh != 1 || s.rows("message") != 1 {
		t.Errorf("%d ids, %d fresh, %d rows; want 1, 1, 1", len(all), fresh, s.rows("message"))
	}
	_, err := c.Publish(t.Context(), client.Message{Topic: "orders", Body: []byte("other")}, client.PublishOptions{IdempotencyKey: "k"})
	var e *client.Error
	if !errors.As(err, &e) || e.Reason != client.ReasonConflict {
		t.Errorf("another content under the same key: %v, want a conflict", err)
	}
}

func TestABrokerWithoutAShardForwardsInOrder(t *testing.T) {
	s := newStage(t)
	// One owner may hold everything when only one shard exists.
	for _, table := range []string{"epoch", "lease", "settled"} {
		if _, err := s.db.Exec("DELETE FROM " + table + " WHERE shard > 0"); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := s.broker(nil)
	c1 := s.client(first)
	s.subscribe(c1, "orders", "g")
	s.publish(c1, client.Message{Topic: "orders", Body: []byte("x")}) // the first owns the shard
	second, _ := s.broker(nil)
	p := s.publisher(s.client(second))
	const n = 500
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		if err := p.Send(t.Context(), client.Message{Topic: "orders", Key: "k", Body: fmt.Append(nil, i)}, client.PublishOptions{}, func(_ client.Published, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	rows, err := s.db.Query("SELECT body FROM message_00 WHERE msg_key = 'k' ORDER BY pos")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	i := 0
	for ; rows.Next(); i++ {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			t.Fatal(err)
		}
		if string(body) != fmt.Sprint(i) {
			t.Fatalf("place %d holds message %s", i, body)
		}
	}
	if i != n {
		t.Errorf("%d messages, want %d", i, n)
	}
}
