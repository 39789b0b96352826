package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

var deadLetters = []*notifyv1.DeadLetter{
	{Message: &notifyv1.Message{Id: "id-1", Topic: "orders", Key: "k", Headers: map[string]string{"a": "b"}, Body: []byte("hello"), BornAtUs: 1}, Group: "stock", Store: "a",
		Reason: "rejected", Attempts: 1, FirstError: "rejected: bad", LastError: "rejected: bad", DeadAtUs: 2},
	{Message: &notifyv1.Message{Id: "id-2", Topic: "orders", Body: []byte{0xff}}, Group: "stock", Store: "a", Reason: "max_attempts", Attempts: 9, LastError: "nack"},
	{Message: &notifyv1.Message{Id: "id-3", Topic: "mails"}, Group: "mail", Store: "a", Reason: "max_attempts", Attempts: 9, LastError: "nack"},
	{Message: &notifyv1.Message{Id: "id-4", Topic: "mails"}, Group: "mail", Store: "a", Reason: "max_attempts", Attempts: 9, LastError: "nack"},
}

func fits(f *notifyv1.DeadLetterFilter, d *notifyv1.DeadLetter) bool {
	return (f.GetGroup() == "" || f.GetGroup() == d.Group) && (f.GetTopic() == "" || f.GetTopic() == d.Message.Topic) &&
		(f.GetReason() == "" || f.GetReason() == d.Reason) && (len(f.GetIds()) == 0 || slices.Contains(f.GetIds(), d.Message.Id))
}

// ListDeadLetters answers with two a page.
func (f *fakeBroker) ListDeadLetters(_ context.Context, r *connect.Request[notifyv1.ListDeadLettersRequest]) (*connect.Response[notifyv1.ListDeadLettersResponse], error) {
	res := &notifyv1.ListDeadLettersResponse{}
	for _, d := range deadLetters {
		if !fits(r.Msg.GetFilter(), d) || d.Message.Id <= r.Msg.GetAfter() {
			continue
		}
		if len(res.DeadLetters) == 2 {
			res.Next = res.DeadLetters[1].Message.Id
			break
		}
		res.DeadLetters = append(res.DeadLetters, d)
	}
	return connect.NewResponse(res), nil
}

// RedriveDeadLetters changes one a call. The topic "moving" has a shard without an owner.
func (f *fakeBroker) RedriveDeadLetters(_ context.Context, r *connect.Request[notifyv1.ChangeDeadLettersRequest]) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = append(f.settled, "redrive "+r.Msg.String())
	if r.Msg.GetDryRun() {
		return connect.NewResponse(&notifyv1.ChangeDeadLettersResponse{Changed: 10_000, More: true}), nil
	}
	res := &notifyv1.ChangeDeadLettersResponse{Changed: 1, More: r.Msg.GetBeforeUs() == 0, BeforeUs: 77}
	out := &notifyv1.ShardOutcome{Store: "a", Shard: 3, Changed: 1}
	for _, d := range deadLetters {
		if fits(r.Msg.GetFilter(), d) {
			out.Ids = append(out.Ids, d.Message.Id)
		}
	}
	if r.Msg.GetFilter().GetTopic() == "moving" {
		out.Error = "try again"
	}
	res.Shards = []*notifyv1.ShardOutcome{out}
	return connect.NewResponse(res), nil
}

func (f *fakeBroker) PurgeDeadLetters(_ context.Context, r *connect.Request[notifyv1.ChangeDeadLettersRequest]) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error) {
	return connect.NewResponse(&notifyv1.ChangeDeadLettersResponse{Changed: 5}), nil
}

func TestDeadLettersAreListedShownExportedAndCountedByError(t *testing.T) {
	b := startBroker(t)
	r := b.notify(t, "", "dead", "ls", "--group", "stock")
	r.want(t, 0, "id-1\torders\tstock\trejected\t1\t1970-01-01T00:00:00Z\trejected: bad\nid-2\torders\tstock\tmax_attempts\t9\t-\tnack\n")
	if r := b.notify(t, "", "dead", "ls", "-o", "json"); !strings.Contains(r.out, `"next": "id-2"`) || strings.Contains(r.out, "hello") {
		t.Errorf("stdout %q", r.out)
	}
	b.notify(t, "", "dead", "ls", "--by", "error").want(t, 0, "2\tmail\tmax_attempts\tnack\n1\tstock\tmax_attempts\tnack\n1\tstock\trejected\trejected: bad\n")
	b.notify(t, "", "dead", "ls", "--by", "colour").want(t, 2, "")
	b.notify(t, "", "dead", "show", "id-1").want(t, 0, "id\tid-1\ntopic\torders\nkey\tk\nborn\t1970-01-01T00:00:00Z\nheader\ta=b\nbody\thello\n"+
		"group\tstock\n  reason\trejected\n  attempts\t1\n  died\t1970-01-01T00:00:00Z\n  first error\trejected: bad\n  last error\trejected: bad\n")
	b.notify(t, "", "dead", "show", "id-9").want(t, 4, "")
	r = b.notify(t, "", "dead", "export")
	if lines := strings.Split(strings.TrimSpace(r.out), "\n"); r.code != 0 || len(lines) != 4 || !strings.Contains(lines[0], `"body":"hello"`) || !strings.Contains(lines[1], `"body_base64":"/w=="`) {
		t.Errorf("exit %d, stdout %q", r.code, r.out)
	}
}

func TestARedriveGoesOnUntilNothingIsLeftAndNamesWhatWasNotDone(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "dead", "redrive", "--group", "stock", "--rate", "9").want(t, 0, "redriven\t2\n")
	if len(b.settled) != 2 || !strings.Contains(b.settled[0], "rate:9") || !strings.Contains(b.settled[1], "before_us:77") {
		t.Errorf("calls %q", b.settled)
	}
	b.notify(t, "", "dead", "redrive", "id-1").want(t, 0, "redriven\t2\n")
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{2, "name ids, a filter, or --all", nil},
		{2, "leave ids and filters out", []string{"--all", "--topic", "t"}},
		{3, "message id-9 has no dead letter", []string{"id-1", "id-9"}},
		{4, "message id-9 has no dead letter", []string{"id-9"}},
		{3, "store a shard 3: try again", []string{"--topic", "moving"}},
	} {
		if r := b.notify(t, "", append([]string{"dead", "redrive"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.text) {
			t.Errorf("%v: exit %d, stderr %q; want %d, %q", c.args, r.code, r.err, c.code, c.text)
		}
	}
	b.notify(t, "", "dead", "redrive", "--all", "--dry-run").want(t, 0, "would be redriven\t10000+\nid-1\torders\tstock\trejected\trejected: bad\nid-2\torders\tstock\tmax_attempts\tnack\n")
}

func TestDroppingDeadLettersWantsAYes(t *testing.T) {
	b := startBroker(t)
	if r := b.notify(t, "", "dead", "drop", "--all"); r.code != 2 || !strings.Contains(r.err, "--yes") {
		t.Errorf("exit %d, stderr %q", r.code, r.err)
	}
	b.notify(t, "", "dead", "drop", "--all", "--yes", "-o", "jsonl").want(t, 0, `{"changed":5}`+"\n")
}
