package main

import (
	"strings"
	"testing"

	"notifymirror/cmd/daemon"
)

func TestAHalfIsShownWithWhyItWaitsAndAskedAboutByHand(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "half", "show", "id-1").want(t, 0, "id\tid-1\ntopic\tt\nproducer group\tshop\nprepared\t-\nchecks\t15\nnext check\tparked\n"+
		"asked at\thttp://x\nlast error\tstatus 500\nkey\tk\nheader\ta=1\nbody\t\"one\\ntwo\"\nwhy\tparked: because\n")
	b.notify(t, "", "half", "show", "id-1", "-o", "jsonl").want(t, 0, `{"id":"id-1","topic":"t","key":"k","producer_group":"shop","check_url":"http://x","checks":15,"parked":true,`+
		`"last_error":"status 500","why":"parked: because","headers":{"a":"1"},"body":"one\ntwo"}`+"\n")
	if r := b.notify(t, "", "half", "show", "id-9"); r.code != daemon.ExitNotFound || !strings.Contains(r.err, "its decision was commit") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("a decided half: code %d, %q", r.code, r.err)
	}
	b.notify(t, "", "half", "check", "id-1").want(t, 0, "id\tid-1\nwas parked\ttrue\nwhy\tthe next check is due\n")
}

func TestATopicsSettingsAreSetByCreateAndSet(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "topic", "create", "t", "--check-after", "5m").want(t, 0, "topic\tt\nmirrored\ttrue\ndurability\tdurable\ncheck after\t5m0s\n")
	b.notify(t, "", "topic", "set", "t", "check_after=90s").want(t, 0, "topic\tt\nmirrored\ttrue\ndurability\tdurable\ncheck after\t1m30s\n")
	b.notify(t, "", "topic", "set", "t", "check_after=0s", "-o", "jsonl").want(t, 0, `{"name":"t","mirrored":true,"durability":"durable"}`+"\n")
	b.notify(t, "", "topic", "set", "t", "durability=replicated").want(t, 0, "topic\tt\nmirrored\ttrue\ndurability\treplicated\n")
	for args, want := range map[string]string{
		"durability=big":  `durability "big": want durable, replicated or memory`,
		"durability":      `durability "": want durable, replicated or memory`,
		"check_after":     "want a duration",
		"colour=red":      "want check_after=DURATION",
		"check_after=5":   "want a duration",
		"check_after=-5s": "want a duration",
		"check_after=5us": "want whole milliseconds",
	} {
		if r := b.notify(t, "", "topic", "set", "t", args); r.code != daemon.ExitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: code %d, %q; want %q", args, r.code, r.err, want)
		}
	}
}

func TestRejectedOutboxRowsAreListedShownAndPutBack(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "outbox", "rejected", "ls").want(t, 0, "a\t7\tid-7\tt\t1970-01-01T00:00:00Z\theaders: not JSON\n")
	b.notify(t, "", "outbox", "rejected", "ls", "-o", "jsonl").want(t, 0,
		`{"store":"a","seq":7,"id":"id-7","topic":"t","rejected_at":"1970-01-01T00:00:00.000001Z","reason":"headers: not JSON"}`+"\n")
	b.notify(t, "", "outbox", "rejected", "show", "7").want(t, 0, "store\ta\nseq\t7\nid\tid-7\ntopic\tt\nrejected\t1970-01-01T00:00:00Z\nheaders\t{\n"+
		"body\t\"\\xff\"\nreason\theaders: not JSON\n")
	b.notify(t, "", "outbox", "rejected", "resubmit", "7").want(t, 0, "7\tback in the outbox\n")
	b.notify(t, "", "outbox", "rejected", "resubmit", "7", "8").want(t, daemon.ExitPartly, "7\tback in the outbox\n8\tfailed: no such rejected outbox row\n")
	if r := b.notify(t, "", "outbox", "rejected", "resubmit", "8"); r.code != daemon.ExitNotFound || !strings.Contains(r.err, "no such rejected outbox row") {
		t.Errorf("a row that is not rejected: code %d, %q", r.code, r.err)
	}
	if r := b.notify(t, "", "outbox", "rejected", "show", "x"); r.code != daemon.ExitUsage || !strings.Contains(r.err, `"x" is not the seq`) {
		t.Errorf("no seq: code %d, %q", r.code, r.err)
	}
}
