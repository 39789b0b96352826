package main

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

func TestASubscriptionIsDeclaredAsTheFlagsSay(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "sub", "add", "--group", "g", "--topic", "t", "--filter", `key == "a"`, "--mode", "cluster",
		"--ack-wait", "30s", "--retry-min", "2s", "--retry-max", "1m", "--max-attempts", "5", "--max-age", "2000h").
		want(t, 0, "group\tg\ntopic\tt\nmode\tcluster\nfilter\tkey == \"a\"\nack wait\t30s\nretry min\t2s\nretry max\t1m0s\n"+
			"max attempts\t5\nmax age\t2000h0m0s\nversion\t1\ngroup created\ttrue\n")
	want := &notifyv1.Subscription{Group: "g", Topic: "t", Filter: `key == "a"`, Mode: notifyv1.Mode_MODE_CLUSTER, Delivery: &notifyv1.DeliverySettings{
		AckWaitMs: 30_000, RetryMinMs: 2000, RetryMaxMs: 60_000, MaxAttempts: 5, MaxAgeMs: 7_200_000_000}}
	if !proto.Equal(b.subs[0], want) {
		t.Errorf("asked for %v, want %v", b.subs[0], want)
	}
	if r := b.notify(t, "", "sub", "add", "--group", "g", "--topic", "t", "--mode", "all"); r.code != 2 || !strings.Contains(r.err, "want cluster or broadcast") {
		t.Errorf("%+v", r)
	}
}

func TestSubSetSendsOnlyWhatIsGiven(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "sub", "set", "g/t", "--filter", "", "--max-attempts", "0").want(t, 0, "group\tg\ntopic\tt\nmode\tcluster\nversion\t2\n")
	none, zero := "", uint32(0)
	if want := (&notifyv1.UpdateSubscriptionRequest{Group: "g", Topic: "t", Filter: &none, MaxAttempts: &zero}); !proto.Equal(b.updated, want) {
		t.Errorf("asked for %v, want %v", b.updated, want)
	}
	for want, args := range map[string][]string{"nothing to change": {"g/t"}, "want GROUP/TOPIC": {"g", "--filter", "x"}, "whole milliseconds": {"g/t", "--ack-wait", "1ns"}} {
		if r := b.notify(t, "", append([]string{"sub", "set"}, args...)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%v: %+v, want %q", args, r, want)
		}
	}
}

func TestSubShowAndRm(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "sub", "show", "g/t").want(t, 0, "group\tg\ntopic\tt\nmode\tcluster\nversion\t1\ncreated\t-\n")
	r := b.notify(t, "", "sub", "rm", "g/t")
	r.want(t, 0, "group\tg\ntopic\tt\n")
	if !strings.Contains(r.err, "not yet in force in shop") {
		t.Errorf("stderr %q", r.err)
	}
}

func TestAGroupIsDroppedOnlyWhenThatIsMeant(t *testing.T) {
	b := startBroker(t)
	if r := b.notify(t, "", "group", "rm", "g"); r.code != 2 || !strings.Contains(r.err, "--yes") || len(b.dropped) != 0 {
		t.Errorf("%+v, dropped %v", r, b.dropped)
	}
	b.notify(t, "", "group", "rm", "g", "--dry-run").want(t, 0, "group\tg\ntopics\t\npending\t0\n")
	if len(b.dropped) != 0 {
		t.Errorf("dropped %v in a dry run", b.dropped)
	}
	b.notify(t, "", "group", "rm", "g", "--yes").want(t, 0, "group\tg\n")
	if !slices.Equal(b.dropped, []string{"g"}) {
		t.Errorf("dropped %v", b.dropped)
	}
}

func TestListenChangesTheFilterOfItsOwnGroup(t *testing.T) {
	b := startBroker(t)
	b.deliver = []*notifyv1.Message{{Topic: "t", Text: "x"}}
	for _, filter := range []string{`key == "a"`, `key == "b"`} {
		if r := b.notify(t, "", "listen", "t", "--count", "1", "--filter", filter); r.code != 0 {
			t.Errorf("%+v", r)
		}
	}
	if len(b.subs) != 1 || b.subs[0].GetFilter() != `key == "a"` || b.updated.GetFilter() != `key == "b"` {
		t.Errorf("declared %v, updated %v", b.subs, b.updated)
	}
}
