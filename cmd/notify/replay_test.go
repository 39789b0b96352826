package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/client"
)

// Replay acknowledges all but what its body says otherwise of, and is down after failAfter outcomes, for good.
func (f *fakeBroker) Replay(_ context.Context, r *connect.Request[notifyv1.ReplayRequest], s *connect.ServerStream[notifyv1.ReplayResponse]) error {
	for i, m := range r.Msg.GetMessages() {
		o := &notifyv1.ReplayOutcome{Index: uint32(i), Outcome: client.ReplayAcknowledged, Attempts: 1}
		f.mu.Lock()
		down := f.replayUntil > 0 && len(f.replayed) == f.replayUntil
		if !down {
			f.replayed = append(f.replayed, string(m.GetBody()))
			f.replayHeaders = m.GetHeaders()
		}
		f.mu.Unlock()
		if down {
			return detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_UNKNOWN_GROUP, Message: "group dropped"})
		}
		switch string(m.GetBody()) {
		case "body 2":
			o.Outcome, o.Error = client.ReplayRejected, "rejected: no"
		case "body 3":
			o.Outcome, o.Attempts = client.ReplayMaxAttempts, 16
		case "body 4":
			o.Outcome = client.ReplayPassedOver
		}
		if err := s.Send(&notifyv1.ReplayResponse{Outcomes: []*notifyv1.ReplayOutcome{o}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeBroker) replays() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.replayed
	f.replayed = nil
	slices.Sort(got)
	return got
}

func TestReplayNamesWhatWasNotAcknowledged(t *testing.T) {
	kafka, f := mirrored(t, 6), startBroker(t)
	args := []string{"replay", "t", "--group", "g", "--kafka", kafka, "--from"}
	r := f.notify(t, "", append(args, "oldest")...)
	lines := strings.Split(r.out, "\n")
	slices.Sort(lines)
	if want := []string{"", "00000000-0000-0000-0000-000000000002\trejected\t0\t1\trejected: no", "00000000-0000-0000-0000-000000000003\tmax_attempts\t1\t1\t"}; r.code != 1 || !slices.Equal(lines, want) {
		t.Errorf("exit %d, %q", r.code, lines)
	}
	if !strings.Contains(r.err, "acknowledged 3, passed over 1, rejected 1, failed 1\n") || !strings.Contains(r.err, "2 of 6 messages were not acknowledged") {
		t.Errorf("stderr %q", r.err)
	}
	if got := f.replays(); len(got) != 6 || f.replayHeaders["h"] != "v" || len(f.replayHeaders) != 1 {
		t.Errorf("replayed %q, headers %v", got, f.replayHeaders)
	}
	r = f.notify(t, "", append(args, "1970-01-01T00:00:01Z", "--to", "1970-01-01T00:00:02Z", "-o", "json")...)
	r.want(t, 0, `{"acknowledged":1,"passed_over":0,"rejected":0,"failed":0,"resumed":false,"finished":true}`+"\n")
	if got := f.replays(); !slices.Equal(got, []string{"body 1"}) {
		t.Errorf("a range: %q", got)
	}
	id := func(n byte) string { return uuid.UUID{15: n}.String() }
	r = f.notify(t, "", append(args, id(1), "--to", id(2))...)
	if got := f.replays(); r.code != 0 || !slices.Equal(got, []string{"body 1"}) {
		t.Errorf("from a message to another: %q, %+v", got, r)
	}
}

func TestReplayGoesOnWhereItWas(t *testing.T) {
	kafka, f := mirrored(t, 12), startBroker(t)
	args := []string{"replay", "t", "--group", "g", "--kafka", kafka, "--from", "5", "--rate", "1"} // one by one
	f.replayUntil = 1
	if r := f.notify(t, "", args...); r.code != 4 || !strings.Contains(r.err, `group dropped; the same command goes on, by the Kafka group "replay.g.t 5 newest"`) {
		t.Fatalf("%+v", r)
	}
	first := f.replays()
	f.replayUntil = 0
	r := f.notify(t, "", args...)
	if r.code != 0 || !strings.Contains(r.err, "acknowledged 1, passed over 0, rejected 0, failed 0, beside what an earlier run") {
		t.Errorf("%+v", r)
	}
	if got := append(first, f.replays()...); len(got) != 2 {
		t.Errorf("replayed %q", got)
	}
}

func TestReplayKeepsToItsRate(t *testing.T) {
	kafka, f := mirrored(t, 40), startBroker(t)
	began := time.Now()
	r := f.notify(t, "", "replay", "t", "--group", "g", "--kafka", kafka, "--from", "5", "--rate", "40")
	if took := time.Since(began); r.code != 0 || took < 600*time.Millisecond { // 30 messages, of which 4 go at once
		t.Errorf("%+v, took %s", r, took)
	}
}

func TestReplayTellsWhatIsWrong(t *testing.T) {
	if r := notify(t, "", "replay", "--help"); !strings.Contains(r.out, "Exit code 0 when every message of this run") {
		t.Errorf("%+v", r)
	}
	kafka, f := mirrored(t, 1), startBroker(t)
	for _, c := range []struct {
		code int
		text string
		args string
	}{
		{2, "group", "t --from oldest"},
		{2, "from", "t --group g"},
		{2, "--from", "t --group g --from yesterday"},
		{2, "--to", "t --group g --from oldest --to tomorrow"},
		{4, "was not found", "t --group g --from 0197a1b2-5c3d-7e4f-8a9b-0c1d2e3f4a5b"},
		{2, "--rate", "t --group g --from oldest --rate -1"},
		{4, `does not subscribe to topic "t"`, "t --group missing --from oldest"},
		{2, "by broadcast", "t --group all --from oldest"},
		{4, "unknown", "unknown --group g --from oldest"},
		{6, "notify dev", "t --group g --from oldest --kafka 127.0.0.1:1"},
		{6, "cannot be reached", "t --group g --from oldest --server 127.0.0.1:1"},
	} {
		args := append([]string{"replay"}, strings.Fields(c.args)...)
		if !slices.Contains(args, "--kafka") {
			args = append(args, "--kafka", kafka)
		}
		if !slices.Contains(args, "--server") {
			args = append(args, "--server", f.addr)
		}
		if r := notify(t, "", args...); r.code != c.code || !strings.Contains(r.err, c.text) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	if got := f.replays(); len(got) > 0 {
		t.Errorf("replayed %q", fmt.Sprint(got))
	}
}
