package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// sarama's metrics library has one goroutine for the whole process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func TestListsAreTabSeparatedAwayFromATerminalAndWholeInJSON(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "topic", "ls").want(t, 0, "a\ttrue\tdurable\t1970-01-01T00:00:00Z\nb\tfalse\treplicated\t-\n")
	b.notify(t, "", "topic", "ls", "-o", "jsonl").want(t, 0, `{"name":"a","mirrored":true,"created_at":"1970-01-01T00:00:00.000001Z","durability":"durable"}`+"\n"+`{"name":"b","mirrored":false,"durability":"replicated"}`+"\n")
	b.notify(t, "", "group", "ls").want(t, 0, "g\ta,b\t0\t3\t10000+\n")
	b.notify(t, "", "sub", "ls").want(t, 0, "g\tt\tcluster\t-\t\n")
	b.notify(t, "", "topic", "show", "t").want(t, 0, "topic\tt\nmirrored\ttrue\ndurability\tdurable\ncreated\t-\ngroup\tg\n")
	b.notify(t, "", "group", "show", "g").want(t, 0, "group\tg\nstate\tserved\ntopics\t\nin flight\t0\npending\t0\nin memory\t4\ncreated\t-\ninstance\ti at p, 0 of 5 in flight\n")
	b.notify(t, "", "topic", "create", "t", "--no-mirror", "--durability", "replicated").want(t, 0, "topic\tt\nmirrored\tfalse\ndurability\treplicated\n")
	b.notify(t, "", "sub", "add", "--group", "g", "--topic", "t").want(t, 0, "group\tg\ntopic\tt\nmode\tcluster\nversion\t1\ngroup created\ttrue\n")
}

func TestListThatStoppedEarlySaysHowToGoOn(t *testing.T) {
	b := startBroker(t)
	b.next = "TOKEN"
	r := b.notify(t, "", "topic", "ls")
	if !strings.Contains(r.err, "stopped at 2, continue with --after TOKEN") {
		t.Errorf("stderr %q", r.err)
	}
	if r := b.notify(t, "", "topic", "ls", "-o", "json"); !strings.Contains(r.out, `"truncated": true`) || !strings.Contains(r.out, `"next": "TOKEN"`) {
		t.Errorf("stdout %q", r.out)
	}
	if r := b.notify(t, "", "topic", "ls", "-o", "jsonl"); !strings.HasSuffix(r.out, `{"next":"TOKEN","truncated":true}`+"\n") {
		t.Errorf("stdout %q", r.out)
	}
	if r := b.notify(t, "", "topic", "ls", "--after", "x"); !strings.HasPrefix(r.out, "xa\t") {
		t.Errorf("--after was not sent: %q", r.out)
	}
}

func TestExitCodesTellWhatWentWrong(t *testing.T) {
	b := startBroker(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	closed := ln.Addr().String()
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{2, "unknown command", []string{"nonsense"}},
		{2, "unknown command", []string{"topic", "nonsense"}},
		{2, "unknown flag", []string{"topic", "ls", "--nonsense"}},
		{2, "required flag", []string{"sub", "add", "--group", "g"}},
		{2, "want text, json or jsonl", []string{"topic", "ls", "-o", "xml"}},
		{2, "want host:port", []string{"topic", "ls", "--server", "nowhere"}},
		{2, "not both", []string{"listen", "t", "--group", "g"}},
		{2, "name a topic", []string{"listen"}},
		{2, "name=value", []string{"publish", "t", "b", "-H", "x"}},
		{2, "no such file", []string{"publish", "t", "--ndjson", "/nonexistent"}},
		{2, "not both", []string{"publish", "t", "body", "--ndjson", "f"}},
		{2, "need --ndjson", []string{"publish", "t", "body", "--key-field", "f"}},
		{2, "at least 1", []string{"publish", "t", "body", "--count", "0"}},
		{2, "at most 3", []string{"publish", "t", "refuse"}},
		{4, "notify topic create missing", []string{"publish", "missing", "body"}},
		{4, "no such group", []string{"group", "show", "missing"}},
		{4, "notify sub add", []string{"listen", "--group", "missing"}},
		{5, "denied", []string{"publish", "secret", "body"}},
		{6, "notify dev", []string{"publish", "t", "body", "--server", closed}},
		{6, "notify dev", []string{"publish", "t", "body", "--count", "3", "--server", closed}},
		{6, "notify dev", []string{"listen", "t", "--server", closed}},
		{6, "connection refused", []string{"mirror", "status", "--ops", closed}},
	} {
		args := c.args
		if !slices.Contains(args, "--server") {
			args = append(args, "--server", b.addr)
		}
		r := notify(t, "", args...)
		if r.code != c.code || !strings.Contains(r.err, c.text) || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%v: exit %d, stdout %q, stderr %q; want exit %d and one line with %q", c.args, r.code, r.out, r.err, c.code, c.text)
		}
	}
}

func TestPublishTakesItsBodyFromArgumentFileOrStdin(t *testing.T) {
	b := startBroker(t)
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.notify(t, "", "publish", "t", "argument", "-k", "42", "-H", "a=b", "-H", "c=d=e", "--idempotency-key", "once").want(t, 0, "id-1\n")
	b.notify(t, "", "publish", "t", "@"+file).want(t, 0, "id-2\n")
	b.notify(t, "from stdin", "publish", "t").want(t, 0, "id-3\n")
	b.notify(t, "dash", "publish", "t", "-", "-o", "jsonl").want(t, 0, `{"id":"id-4","duplicate":false}`+"\n")
	if r := b.notify(t, "", "publish", "volatile", "x", "-o", "jsonl"); r.out != `{"id":"id-v","duplicate":false,"in_memory":true}`+"\n" || !strings.Contains(r.err, "in memory only") {
		t.Errorf("publish to a memory topic: %q, %q", r.out, r.err)
	}
	var bodies []string
	for _, p := range b.published {
		bodies = append(bodies, string(p.GetMessage().GetBody()))
	}
	if want := []string{"argument", "from file\n", "from stdin", "dash"}; !slices.Equal(bodies, want) {
		t.Errorf("bodies %q, want %q", bodies, want)
	}
	first := b.published[0]
	if m := first.GetMessage(); m.GetKey() != "42" || m.GetHeaders()["a"] != "b" || m.GetHeaders()["c"] != "d=e" || first.GetIdempotencyKey() != "once" {
		t.Errorf("got %v", first)
	}
}

func TestCountPublishesTheMessageSoManyTimes(t *testing.T) {
	b := startBroker(t)
	r := b.notify(t, "", "publish", "t", "x", "--count", "1000", "--idempotency-key", "k")
	if r.code != 0 || r.out != "" || !strings.HasPrefix(r.err, "1000 published, 0 failed") || len(b.published) != 1000 {
		t.Fatalf("%+v, %d published", r, len(b.published))
	}
	if k := b.published[999].GetIdempotencyKey(); k != "k-1000" {
		t.Errorf("last idempotency key %q", k)
	}
}

func TestRateSpreadsMessages(t *testing.T) {
	b := startBroker(t)
	r := b.notify(t, "", "publish", "t", "x", "--count", "5", "--rate", "10")
	if r.code != 0 || !strings.Contains(r.err, "5 published") || len(b.published) != 5 {
		t.Fatalf("%+v", r)
	}
	if strings.Contains(r.err, " 0.0 s") {
		t.Errorf("five messages at 10/s took no time: %q", r.err)
	}
}

func TestNDJSONKeepsEachLinesExactBytes(t *testing.T) {
	b := startBroker(t)
	lines := []string{
		`{"origin": "SEA",  "n": 1.50, "late": true}`,
		`   {"origin":"S\u0046O","n":2}` + "\r",
		`{"n":3}`,
		`{"origin":{"x":1}}`,
		`not json`,
		`{"origin":7,"n":null}`,
	}
	file := filepath.Join(t.TempDir(), "f.ndjson")
	if err := os.WriteFile(file, []byte(strings.Join(lines[:3], "\n")+"\n\n  \n"+strings.Join(lines[3:], "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := b.notify(t, "", "publish", "t", "--ndjson", file, "--key-field", "origin", "--header-field", "n=n", "--header-field", "late=late", "-H", "all=1")
	if r.code != 3 || !strings.Contains(r.err, `line 3: field "origin", the key, is missing`) || !strings.Contains(r.err, "line 6: field \"origin\": is an object") ||
		!strings.Contains(r.err, "line 7: not a JSON object") || !strings.Contains(r.err, "3 of 6 failed") {
		t.Errorf("%+v", r)
	}
	want := []string{
		"SEA " + lines[0] + " map[all:1 late:true n:1.50]",
		"SFO " + lines[1] + " map[all:1 n:2]",
		"7 " + lines[5] + " map[all:1]",
	}
	var got []string
	for _, p := range b.published {
		got = append(got, fmt.Sprint(p.GetMessage().GetKey(), " ", string(p.GetMessage().GetBody()), " ", p.GetMessage().GetHeaders()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestJSONArrayKeepsEachElementsExactBytes(t *testing.T) {
	b := startBroker(t)
	r := b.notify(t, "  [ {\"k\": 1 ,\n \"x\":[2]}\n,{\"k\":\"b\"} ]\n", "publish", "t", "--json-array", "-", "--key-field", "k", "-o", "jsonl")
	r.want(t, 0, `{"item":"element 1","id":"id-1","duplicate":false}`+"\n"+`{"item":"element 2","id":"id-2","duplicate":false}`+"\n")
	if body := string(b.published[0].GetMessage().GetBody()); body != "{\"k\": 1 ,\n \"x\":[2]}" {
		t.Errorf("body %q", body)
	}
	if k := b.published[1].GetMessage().GetKey(); k != "b" {
		t.Errorf("key %q", k)
	}
	r = b.notify(t, `[{"k":1},{"k"`, "publish", "t", "--json-array", "-")
	if r.code != 3 || !strings.Contains(r.err, "stopped after 1 messages: -: element 2 at byte ") {
		t.Errorf("broken array: %+v", r)
	}
}

func TestWrongKindOfFileIsAClearError(t *testing.T) {
	b := startBroker(t)
	if r := b.notify(t, `[{"a":1}]`, "publish", "t", "--ndjson", "-"); r.code != 2 || !strings.Contains(r.err, "use --json-array") {
		t.Errorf("%+v", r)
	}
	if r := b.notify(t, `{"a":1}`, "publish", "t", "--json-array", "-"); r.code != 2 || !strings.Contains(r.err, "use --ndjson") {
		t.Errorf("%+v", r)
	}
	if len(b.published) != 0 {
		t.Errorf("%d were published", len(b.published))
	}
}

func TestPartialFailureNamesEachAndExitsWith3(t *testing.T) {
	b := startBroker(t)
	r := b.notify(t, "one\nrefuse\nthree\n", "publish", "t", "--ndjson", "-")
	if r.code != 3 || !strings.Contains(r.err, "line 2: body has 9 bytes, at most 3") || !strings.Contains(r.err, "1 of 3 failed") {
		t.Errorf("%+v", r)
	}
	r = b.notify(t, "one\nrefuse\n", "publish", "t", "--ndjson", "-", "-o", "json")
	if r.code != 3 || !strings.Contains(r.out, `"published": 1`) || !strings.Contains(r.out, `"item": "line 2"`) {
		t.Errorf("%+v", r)
	}
	if r := b.notify(t, "refuse\n", "publish", "t", "--ndjson", "-"); r.code != 1 {
		t.Errorf("all failed: %+v", r)
	}
	many := strings.Repeat("refuse\n", 30) + "ok\n"
	if r := b.notify(t, many, "publish", "t", "--ndjson", "-"); strings.Count(r.err, "refuse")+strings.Count(r.err, "at most 3") != namedFailures || !strings.Contains(r.err, "and 10 more") {
		t.Errorf("%+v", r)
	}
}

func TestMirrorStatusShowsCanaldsState(t *testing.T) {
	halted, second := false, "waiting"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/status" {
			http.NotFound(w, r)
			return
		}
		if halted {
			fmt.Fprint(w, `{"stores":[{"store":"a","state":"halted","last_error":"binlog is gone","halted_reason":"purged","repair":"notify mirror resume"}]}`)
			return
		}
		fmt.Fprint(w, `{"stores":[{"store":"a","state":"copying","generation":1,"seq":42,"lag_seconds":0.25},{"store":"b","state":"`+second+`","last_error":"binlog is gone","repair":"notify mirror resume"}]}`)
	}))
	defer server.Close()
	ops := strings.TrimPrefix(server.URL, "http://")
	r := notify(t, "", "mirror", "status", "--ops", ops)
	if r.code != 0 || !strings.Contains(r.out, "seq\t42\n") || !strings.Contains(r.out, "lag\t0.250 s\n") {
		t.Errorf("%+v", r)
	}
	if r := notify(t, "", "mirror", "status", "--ops", ops, "-o", "jsonl"); !strings.Contains(r.out, `"seq":42`) {
		t.Errorf("%+v", r)
	}
	second = "halted"
	if r := notify(t, "", "mirror", "status", "--ops", ops); r.code != 3 || !strings.Contains(r.err, "store b has halted: binlog is gone; notify mirror resume") {
		t.Errorf("one of two halted: %+v", r)
	}
	second = `waiting","waiting_reason":"replicas`
	if r := notify(t, "", "mirror", "status", "--ops", ops); r.code != 3 || !strings.Contains(r.err, "store b waits for Kafka to be mended (replicas): notify mirror resume") {
		t.Errorf("one of two waits: %+v", r)
	}
	halted = true
	if r := notify(t, "", "mirror", "status", "--ops", ops); r.code != 1 || !strings.Contains(r.out, "halted\tpurged\n") || !strings.Contains(r.err, "binlog is gone; notify mirror resume") {
		t.Errorf("%+v", r)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	if r := notify(t, "", "version"); r.code != 0 || !strings.Contains(r.out, "version\t") {
		t.Errorf("%+v", r)
	}
	if r := notify(t, "", "completion", "bash"); r.code != 0 || !strings.Contains(r.out, "__start_notify") {
		t.Errorf("exit %d, stderr %q", r.code, r.err)
	}
}

func TestHalvesAreListedAndDecidedByHand(t *testing.T) {
	b := startBroker(t)
	b.notify(t, "", "half", "ls", "--parked").want(t, 0, "id-1\tt\tshop\t-\t15\tparked\n")
	b.notify(t, "", "half", "list", "-o", "jsonl").want(t, 0, `{"id":"id-1","topic":"t","producer_group":"shop","checks":15,"parked":true}`+"\n"+
		`{"id":"id-2","topic":"t","producer_group":"shop","next_check_at":"1970-01-01T00:00:00.000001Z","checks":0,"parked":false}`+"\n")
	b.notify(t, "", "half", "commit", "id-1").want(t, 0, "id\tid-1\ndecision\tcommit\ntaken before\ttrue\n")
	if r := b.notify(t, "", "half", "rollback", "id-1"); r.code != 1 || !strings.Contains(r.err, "commit was taken first") {
		t.Errorf("a contrary decision: code %d, %q", r.code, r.err)
	}
	if r := b.notify(t, "", "half", "commit", "id-9"); r.code != 4 {
		t.Errorf("an unknown half: code %d, want 4", r.code)
	}
}
