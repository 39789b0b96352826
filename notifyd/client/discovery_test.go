package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// counting answers publishes and counts them.
func counting(n *atomic.Int64) func(context.Context, *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error) {
	return func(context.Context, *notifyv1.PublishRequest) (*notifyv1.PublishResponse, error) {
		n.Add(1)
		return &notifyv1.PublishResponse{Id: "x"}, nil
	}
}

func TestABrokerFoundThroughAnotherIsUsedWhenThatOneFails(t *testing.T) {
	var one, two atomic.Int64
	b := (&fakeBroker{publish: counting(&two)}).start(t, "")
	a := &fakeBroker{publish: counting(&one)}
	a.start(t, "")
	a.brokers = func() []string { return []string{a.addr, b.addr} }
	c := fastClient(t, a.addr)
	for range 2 { // the second call lists before it
		if _, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a.stop()
	if _, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	if one.Load() != 2 || two.Load() != 1 {
		t.Errorf("the brokers got %d and %d publishes, want 2 and 1", one.Load(), two.Load())
	}
}

func TestOneCallPaysForNoList(t *testing.T) {
	var n, lists atomic.Int64
	a := &fakeBroker{publish: counting(&n), brokers: func() []string { lists.Add(1); return nil }}
	a.start(t, "")
	if _, err := fastClient(t, a.addr).Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	if lists.Load() != 0 {
		t.Errorf("brokers were listed %d times", lists.Load())
	}
}

func TestConfiguredAddressesAreUsedWhenTheListedOnesAreGone(t *testing.T) {
	var one, two atomic.Int64
	gone := closedPort(t)
	a := (&fakeBroker{publish: counting(&one), brokers: func() []string { return []string{gone} }}).start(t, "")
	b := (&fakeBroker{publish: counting(&two), brokers: func() []string { return []string{gone} }}).start(t, "")
	c := fastClient(t, a.addr, b.addr)
	for i := range 3 {
		if i == 2 {
			a.stop()
		}
		if _, err := c.Publish(t.Context(), client.Message{Topic: "t"}, client.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if two.Load() != 1 {
		t.Errorf("the second configured broker got %d publishes, want 1", two.Load())
	}
}

func TestPublisherMovesToABrokerThatWasListedWhileItsStreamLived(t *testing.T) {
	var first, second storeLog
	listed := make(chan struct{}, 100)
	b := (&fakeBroker{publishStream: second.answerAll}).start(t, "")
	a := &fakeBroker{publishStream: first.answerAll}
	a.start(t, "")
	a.brokers = func() []string { listed <- struct{}{}; return []string{a.addr, b.addr} }
	c := newClient(t, client.Config{Addrs: []string{a.addr}, Refresh: 5 * time.Millisecond, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond})
	p := c.NewPublisher(client.PublisherConfig{})
	ran := make(chan error, 1)
	go func() { ran <- p.Run(t.Context()) }()
	if _, err := p.Publish(t.Context(), client.Message{Topic: "t", Body: []byte("1")}, client.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "list", listed)
	await(t, "list", listed)
	a.stop()
	if _, err := p.Publish(t.Context(), client.Message{Topic: "t", Body: []byte("2")}, client.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := await(t, "publisher's end", ran); err != nil {
		t.Fatal(err)
	}
	if got := second.bodies(); len(got) != 1 || got[0] != "2" {
		t.Errorf("the other broker got %q", got)
	}
}
