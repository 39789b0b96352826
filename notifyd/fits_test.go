package notifyd_test

import (
	"errors"
	"strings"
	"testing"

	"notifymirror/notifyd"
	"notifymirror/notifyd/client"
	"notifymirror/notifyd/message"
)

// What the mirror's topic would refuse is refused before it is stored, however it comes; a
// topic that is not mirrored has no such limit.
func TestWhatTheMirrorWouldRefuseIsNotStored(t *testing.T) {
	s := newStage(t)
	const limit = 500
	addr, _ := s.brokerWith(notifyd.Deps{Fits: func(m *message.Message) (size, most int, ok bool) {
		size = 100 + len(m.Body)
		return size, limit, size <= limit
	}}, nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	if _, answer := s.post(addr, "Admin/CreateTopic", `{"topic":{"name":"local","mirrored":false}}`); answer["code"] != nil {
		t.Fatal(answer)
	}
	body := func(n int) []byte { return []byte(strings.Repeat("x", n)) }
	_, err := c.Publish(t.Context(), client.Message{Topic: "orders", Body: body(401)}, client.PublishOptions{})
	var e *client.Error
	if !errors.As(err, &e) || e.Reason != client.ReasonTooLarge || e.Size != 501 || e.Limit != limit || e.Retryable || !strings.Contains(e.Message, "max.message.bytes") {
		t.Errorf("publish: %v", err)
	}
	insertOutbox(t, s.db, "orders", "", string(body(401)))
	s.until("the outbox row is aside", func() bool { return s.count("SELECT COUNT(*) FROM outbox_rejected") == 1 })
	if n := s.rows("message"); n != 0 {
		t.Errorf("%d messages stored, want 0", n)
	}
	for topic, n := range map[string]int{"orders": 400, "local": 4000} {
		if _, err := c.Publish(t.Context(), client.Message{Topic: topic, Body: body(n)}, client.PublishOptions{}); err != nil {
			t.Errorf("topic %s: %v", topic, err)
		}
	}
}
