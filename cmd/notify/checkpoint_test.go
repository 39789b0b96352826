package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"notifymirror/mirror"
)

// fakeChange answers as canald does, and keeps what was asked.
func fakeChange(t *testing.T) (ops string, asked *[]mirror.Change) {
	t.Helper()
	asked = new([]mirror.Change)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c mirror.Change
		if r.Method != http.MethodPost || r.URL.Path != "/change" || json.NewDecoder(r.Body).Decode(&c) != nil {
			fmt.Fprint(w, `{"stores":[{"store":"a","position":"0-1-7","generation":1,"seq":42}]}`)
			return
		}
		*asked = append(*asked, c)
		if c.Gap == "gap-2" {
			http.Error(w, "checkpoint not changed: the gap's id is gap-1", http.StatusConflict)
			return
		}
		if c.What == mirror.Grow {
			_ = json.NewEncoder(w).Encode(mirror.Outcome{
				Store: "a", What: c.What, Generation: 2, Seq: 42, Applied: !c.DryRun,
				Grows: &mirror.Growth{Topic: "notify." + c.Topic, From: 8, To: c.Partitions, Kafka: 10},
			})
			return
		}
		_ = json.NewEncoder(w).Encode(mirror.Outcome{
			Store: "a", What: c.What, Gap: "gap-1", Lost: "five messages", From: "0-1-7", To: "0-1-9", Skipped: "0-1-9",
			Generation: 2, Seq: 42, Applied: !c.DryRun,
		})
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), asked
}

func TestAGapIsShownBeforeItIsAccepted(t *testing.T) {
	ops, asked := fakeChange(t)
	r := notify(t, "", "mirror", "resume", "--ops", ops)
	if r.code != 2 || !strings.Contains(r.err, "--accept-gap") {
		t.Errorf("without the flag: %+v", r)
	}
	r = notify(t, "", "mirror", "resume", "--accept-gap", "--ops", ops, "--store", "a")
	if r.code != 0 || !strings.Contains(r.out, "halt\tfive messages\n") || !strings.Contains(r.out, "skipped\t0-1-9\n") ||
		!strings.Contains(r.out, "done\tfalse\n") || !strings.Contains(r.err, "notify mirror resume --accept-gap=gap-1 --store a") {
		t.Errorf("without an id: %+v", r)
	}
	if !strings.Contains(r.err, "nothing was skipped;") || strings.Contains(r.err, "nothing was changed") {
		t.Errorf("without an id: %+v", r)
	}
	if r = notify(t, "", "mirror", "resume", "--help"); !strings.Contains(r.out, "copies into Kafka up to the gap") {
		t.Errorf("%+v", r)
	}
	if r = notify(t, "", "mirror", "resume", "--accept-gap=gap-2", "--ops", ops); r.code != 1 || !strings.Contains(r.err, "the gap's id is gap-1") {
		t.Errorf("with another id: %+v", r)
	}
	if r = notify(t, "", "mirror", "resume", "--accept-gap=gap-1", "--ops", ops); r.code != 0 || !strings.Contains(r.out, "done\ttrue\n") {
		t.Errorf("with the id: %+v", r)
	}
	want := []mirror.Change{
		{Store: "a", What: mirror.AcceptGap, DryRun: true}, {What: mirror.AcceptGap, Gap: "gap-2"}, {What: mirror.AcceptGap, Gap: "gap-1"},
	}
	if fmt.Sprint(*asked) != fmt.Sprint(want) {
		t.Errorf("asked %+v", *asked)
	}
}

func TestACheckpointIsChangedOnlyAfterYes(t *testing.T) {
	ops, asked := fakeChange(t)
	for _, command := range [][]string{{"checkpoint", "set", "0-1-9"}, {"checkpoint", "reset"}, {"backfill", "--all"}} {
		args := append([]string{"mirror", "--ops", ops}, command...)
		if r := notify(t, "", args...); r.code != 2 || !strings.Contains(r.err, "--dry-run") {
			t.Errorf("%v: %+v", command, r)
		}
		if r := notify(t, "", append(args, "--dry-run")...); r.code != 0 || !strings.Contains(r.out, "done\tfalse\n") {
			t.Errorf("%v: %+v", command, r)
		}
		if r := notify(t, "", append(args, "--yes")...); r.code != 0 || !strings.Contains(r.out, "done\ttrue\n") {
			t.Errorf("%v: %+v", command, r)
		}
	}
	want := []mirror.Change{
		{What: mirror.SetCheckpoint, Position: "0-1-9", DryRun: true}, {What: mirror.SetCheckpoint, Position: "0-1-9"},
		{What: mirror.ResetCheckpoint, DryRun: true}, {What: mirror.ResetCheckpoint},
		{What: mirror.CopyTables, All: true, DryRun: true}, {What: mirror.CopyTables, All: true},
	}
	if fmt.Sprint(*asked) != fmt.Sprint(want) {
		t.Errorf("asked %+v", *asked)
	}
	if r := notify(t, "", "mirror", "backfill", "--help"); r.code != 0 || !strings.Contains(r.out, "an ALTER TABLE of a message table waits") || !strings.Contains(r.out, "INSERT") {
		t.Errorf("%+v", r)
	}
	if r := notify(t, "", "mirror", "checkpoint", "show", "--ops", ops); r.code != 0 || !strings.Contains(r.out, "position\t0-1-7\n") {
		t.Errorf("%+v", r)
	}
}

func TestATopicGrowsOnlyAfterYes(t *testing.T) {
	ops, asked := fakeChange(t)
	args := []string{"mirror", "grow", "orders", "--ops", ops}
	if r := notify(t, "", append(args, "--yes")...); r.code != 2 || !strings.Contains(r.err, "partitions") {
		t.Errorf("without a number: %+v", r)
	}
	if r := notify(t, "", "mirror", "grow", "--help"); !strings.Contains(r.out, "only say what would change\n") || strings.Contains(r.out, "skipped or repeated") {
		t.Errorf("%+v", r)
	}
	args = append(args, "--partitions", "16")
	if r := notify(t, "", args...); r.code != 2 || !strings.Contains(r.err, "--dry-run") {
		t.Errorf("without --yes: %+v", r)
	}
	for flag, done := range map[string]string{"--dry-run": "false", "--yes": "true"} {
		r := notify(t, "", append(args, flag)...)
		for _, line := range []string{"topic\tnotify.orders\n", "partitions\t16 instead of 8\n", "made in Kafka\t6\n", "order of keys ends at\tseq 42 of generation 2\n", "done\t" + done + "\n"} {
			if r.code != 0 || !strings.Contains(r.out, line) {
				t.Errorf("%s: no line %q in %+v", flag, line, r)
			}
		}
	}
	if len(*asked) != 2 || (*asked)[0].Topic != "orders" || (*asked)[0].Partitions != 16 {
		t.Errorf("asked %+v", *asked)
	}
}

// Whoever was asked for a change and does not answer may be making it: nobody makes it beside that.
func TestAChangeThatIsNotAnsweredIsNotMadeBesideIt(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(server.Close)
	ops := strings.TrimPrefix(server.URL, "http://")
	reset := []string{"mirror", "checkpoint", "reset", "--yes", "--config", "/nonexistent", "--ops"}
	r := notify(t, "", append(reset, ops)...)
	if r.code != 1 || !strings.Contains(r.err, ops+" was asked for it, and has not answered: ") || !strings.Contains(r.err, "notify mirror checkpoint show") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("no answer: %+v", r)
	}
	server.Close()
	if r = notify(t, "", append(reset, ops)...); !strings.Contains(r.err, "/nonexistent") {
		t.Errorf("nobody there: %+v", r)
	}
}

// What has no /change, as an older canald, is said to be one, in a line.
func TestWhatTakesNoChangesIsSaidToBeOne(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	ops := strings.TrimPrefix(server.URL, "http://")
	for _, command := range [][]string{{"grow", "orders", "--partitions", "16", "--dry-run"}, {"backfill", "--dry-run"}, {"resume", "--accept-gap"}, {"checkpoint", "reset", "--dry-run"}} {
		r := notify(t, "", append([]string{"mirror", "--ops", ops}, command...)...)
		if r.code != 1 || !strings.Contains(r.err, ops+" takes no changes") || !strings.Contains(r.err, "--ops") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: %+v", command, r)
		}
	}
}
