package main

import (
	"slices"
	"strings"
	"testing"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

func deliveries() []*notifyv1.Message {
	return []*notifyv1.Message{
		{Id: "1", Topic: "t", Key: "k", Body: []byte("plain text"), BornAtUs: 1_500_000},
		{Id: "2", Topic: "t", Body: []byte("two\nlines")},
		{Id: "3", Topic: "t", Body: []byte{0xff, 0}},
		{Id: "4", Topic: "t", Body: []byte("not wanted")},
	}
}

func TestListenPrintsOneLineForEachDeliveryAndAcks(t *testing.T) {
	b := startBroker(t)
	b.deliver = deliveries()
	r := b.notify(t, "", "listen", "--group", "g", "--count", "3")
	r.want(t, 0, "1970-01-01T00:00:01.500Z\tt\tk\t#1\tplain text\n-\tt\t\t#1\t\"two\\nlines\"\n-\tt\t\t#1\t\"\\xff\\x00\"\n")
	if want := []string{"ack 1", "ack 2", "ack 3"}; !slices.Equal(b.settled, want) {
		t.Errorf("settled %q, want %q", b.settled, want)
	}
	if r.err != "" {
		t.Errorf("stderr %q", r.err)
	}
}

func TestListenInJSONHasTextOrBase64(t *testing.T) {
	b := startBroker(t)
	b.deliver = deliveries()[1:3]
	b.notify(t, "", "listen", "--group", "g", "--count", "2", "-o", "json").want(t, 0,
		`{"id":"2","topic":"t","body":"two\nlines","attempt":1}`+"\n"+`{"id":"3","topic":"t","body_base64":"/wA=","attempt":1}`+"\n")
}

func TestListenNacksOrStaysSilentWhenAsked(t *testing.T) {
	b := startBroker(t)
	b.deliver = deliveries()
	b.notify(t, "", "listen", "--group", "g", "--count", "2", "--nack")
	if want := []string{"nack 1", "nack 2"}; !slices.Equal(b.settled, want) {
		t.Errorf("settled %q, want %q", b.settled, want)
	}
	b.settled = nil
	if r := b.notify(t, "", "listen", "--group", "g", "--count", "2", "--no-ack"); len(b.settled) != 0 || strings.Count(r.out, "\n") != 2 {
		t.Errorf("settled %q, %+v", b.settled, r)
	}
}

func TestListenToTopicsUsesAnOwnGroupAndSaysSo(t *testing.T) {
	b := startBroker(t)
	b.deliver = deliveries()
	r := b.notify(t, "", "listen", "t", "u", "--count", "1")
	if r.code != 0 || len(b.subs) != 2 || b.subs[0].GetTopic() != "t" || b.subs[1].GetTopic() != "u" || !strings.HasPrefix(b.subs[0].GetGroup(), "listen-") {
		t.Fatalf("%+v, subscriptions %v", r, b.subs)
	}
	if !strings.Contains(r.err, "as group "+b.subs[0].GetGroup()) {
		t.Errorf("stderr %q", r.err)
	}
	if !strings.Contains(r.err, "newly subscribed to t, u: messages from now on; older ones: notify mirror tail t --from oldest\n") {
		t.Errorf("stderr %q", r.err)
	}
	if r := b.notify(t, "", "listen", "t", "--count", "1"); r.code != 0 || strings.Contains(r.err, "from now on") {
		t.Errorf("the second time: %+v", r)
	}
	if r := b.notify(t, "", "listen", "t", "--count", "1", "-q"); r.code != 0 || r.err != "" {
		t.Errorf("the second time, quietly: %+v", r)
	}
}

func TestGroupNameKeepsOnlyWhatIsAllowed(t *testing.T) {
	if got := groupName("listen-jö rg@host.example_1"); got != "listen-j-rg-host.example_1" && got != "listen-j--rg-host.example_1" {
		t.Errorf("got %q", got)
	}
	if got := groupName(strings.Repeat("x", 200)); len(got) != 127 {
		t.Errorf("%d bytes", len(got))
	}
}
