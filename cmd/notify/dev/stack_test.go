package dev

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/mirror"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// TestDevStackLivesThroughCtrlCAndKill is the story of a first day: first run with
// the demo, Ctrl-C, second run, kill -9, third run. No message is lost on the way.
func TestDevStackLivesThroughCtrlCAndKill(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	first, base := launchFirst(t, dir, true)
	p := portsFrom(base)
	banner := first.stdout()
	for _, want := range []string{addr(p.api), addr(p.database), addr(p.kafka), dir, "publish hello", "listen hello", "mirror tail hello", "embedded (dev only)", "trades to the groups settlement and risk", p.boardURL()} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner lacks %q:\n%s", want, banner)
		}
	}
	if strings.Index(banner, "listen hello") > strings.Index(banner, "publish hello") {
		t.Errorf("the banner publishes before anybody listens:\n%s", banner)
	}
	c, err := client.New(client.Config{Addrs: []string{addr(p.api)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	publish(t, ctx, c, "one")
	deliveredToDemo(t, ctx, p)
	for _, port := range []int{p.ops, p.mirrorOps} {
		get(t, port, "/livez")
		get(t, port, "/readyz")
		get(t, port, "/metrics")
	}
	get(t, p.mirrorOps, "/status")
	boardIsLive(t, p)

	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := first.end(t); code != 0 {
		t.Errorf("Ctrl-C: exit %d, stderr %s", code, first.err.String())
	}
	last := first.out[len(first.out)-1]
	for _, part := range []string{"stopped    ", "demo", "mirror", "broker", "Kafka", "database"} {
		if !strings.Contains(last, part) { // on a busy machine one may be named as late
			t.Errorf("after Ctrl-C: %q lacks %q", last, part)
		}
	}
	if text := first.err.String(); text != "" {
		t.Errorf("logged below the banner: %s", text)
	}
	if err := p.free(ctx, 0); err != nil {
		t.Errorf("Ctrl-C left something behind: %v", err)
	}

	second := launch(t, dir, base, false)
	second.await(t, "ready in ")
	publish(t, ctx, c, "two")
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second.end(t)

	third := launch(t, dir, base, false)
	third.await(t, "ready in ")
	takesChanges(t, p)
	publish(t, ctx, c, "three")
	if got, want := mirroredBodies(t, ctx, p, 3), []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("the mirror has %q, want %q", got, want)
	}
	if err := third.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := third.end(t); code != 0 {
		t.Errorf("SIGTERM: exit %d, stderr %s", code, third.err.String())
	}
}

// publish stores a message of topic "story" under one key.
func publish(t *testing.T, ctx context.Context, c *client.Client, body string) {
	t.Helper()
	if _, err := c.Publish(ctx, client.Message{Topic: "story", Key: "k", Body: []byte(body)}, client.PublishOptions{}); err != nil {
		t.Fatalf("publish %s: %v", body, err)
	}
}

// deliveredToDemo waits until the demo has trades delivered to both groups: a group
// of our own gets one, and both demo groups have their instance attached.
func deliveredToDemo(t *testing.T, ctx context.Context, p ports) {
	t.Helper()
	c, err := client.New(client.Config{Addrs: []string{addr(p.api)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Admin(ctx, func(admin notifyv1connect.AdminClient) error {
		_, err := admin.AddSubscription(ctx, connect.NewRequest(&notifyv1.AddSubscriptionRequest{Subscription: &notifyv1.Subscription{Group: "witness", Topic: demoTopic}}))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan client.Delivery, 100)
	consumer, err := c.NewConsumer(client.ConsumerConfig{Group: "witness", Handler: func(_ context.Context, d client.Delivery) error {
		select {
		case got <- d:
		default:
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- consumer.Run(running) }()
	select {
	case d := <-got:
		var trade trade
		if err := json.Unmarshal(d.Body, &trade); err != nil || trade.Symbol != d.Key {
			t.Errorf("sample trade %s with key %s: %v", d.Body, d.Key, err)
		}
	case <-time.After(20 * time.Second):
		t.Error("no trade within 20 s")
	}
	stop()
	if err := <-ran; err != nil {
		t.Errorf("consumer: %v", err)
	}
	for _, g := range demoGroups() {
		err := c.Admin(ctx, func(admin notifyv1connect.AdminClient) error {
			r, err := admin.GetGroup(ctx, connect.NewRequest(&notifyv1.GetGroupRequest{Name: g}))
			if err == nil && len(r.Msg.GetGroup().GetInstances()) != 1 {
				err = fmt.Errorf("group %s has %d instances", g, len(r.Msg.GetGroup().GetInstances()))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// boardIsLive waits until the board shows trades and is up to date, and knows of the mirror
// and of the groups.
func boardIsLive(t *testing.T, p ports) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.boardURL()+"boards/"+demoTopic+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	last := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		var f struct {
			State    string
			Count    int
			NoAmount int `json:"no_amount"`
			Mirror   []struct{ State string }
			Groups   []struct{ Group string }
		}
		if !is || json.Unmarshal([]byte(data), &f) != nil {
			continue
		}
		last = data
		if f.State == "live" && f.Count > 0 && f.NoAmount == 0 && len(f.Mirror) == 1 && f.Mirror[0].State == "copying" && len(f.Groups) >= len(demoGroups()) {
			return
		}
	}
	t.Errorf("the board is not live: %s", last)
}

func get(t *testing.T, port int, path string) {
	t.Helper()
	resp, err := http.Get("http://" + addr(port) + path)
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s on port %d: %s", path, port, resp.Status)
	}
}

// takesChanges asks the mirror what a change would do.
func takesChanges(t *testing.T, p ports) {
	t.Helper()
	body := `{"what":"grow","topic":"story","partitions":99,"dry_run":true}`
	resp, err := http.Post("http://"+addr(p.mirrorOps)+"/change", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out mirror.Outcome
	if resp.StatusCode != http.StatusOK || json.Unmarshal(answer, &out) != nil || out.Grows == nil || out.Grows.To != 99 || out.Applied {
		t.Errorf("%s: %s %s", body, resp.Status, answer)
	}
}

// mirroredBodies reads topic "story" with an independent client until n records
// are there.
func mirroredBodies(t *testing.T, ctx context.Context, p ports, n int) []string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr(p.kafka)), kgo.ConsumeTopics("notify.story"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var out []string
	for len(out) < n && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { out = append(out, string(r.Value)) })
	}
	return out
}

func TestEphemeralRunRemovesItsDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, remove, err := Config{Ephemeral: true}.directory()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

// A run that fails half way stops what it had started.
func TestFailedStartLeavesNothingRunning(t *testing.T) {
	dir, base := t.TempDir(), freeBase(t)
	p := portsFrom(base)
	if err := os.WriteFile(dir+"/kafka", nil, 0o600); err != nil { // where a directory should be
		t.Fatal(err)
	}
	var out strings.Builder
	err := Run(t.Context(), Config{DataDir: dir, BasePort: base, Version: "test", Out: &out, Err: &out})
	if err == nil || !strings.Contains(err.Error(), "kafka") {
		t.Fatalf("got %v", err)
	}
	if err := p.free(t.Context(), 0); err != nil {
		t.Errorf("left running: %v", err)
	}
	held, err := lock(dir)
	if err != nil {
		t.Fatalf("still locked: %v", err)
	}
	held.Close()
}
