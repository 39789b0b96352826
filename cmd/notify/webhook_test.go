package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"notifymirror/cmd/daemon"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

func (f *fakeBroker) SetWebhook(_ context.Context, r *connect.Request[notifyv1.SetWebhookRequest]) (*connect.Response[notifyv1.SetWebhookResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = append(f.settled, "secret "+r.Msg.GetSecret())
	res := &notifyv1.SetWebhookResponse{Webhook: &notifyv1.Webhook{Group: r.Msg.GetGroup(), Url: r.Msg.GetUrl(), Concurrency: r.Msg.GetConcurrency(), TimeoutMs: r.Msg.GetTimeoutMs(),
		Secrets: []*notifyv1.WebhookSecret{{KeyId: "k1", CreatedAtUs: 1e6}}}}
	if r.Msg.GetSecret() == "" {
		res.Secret = "whsec_new"
	}
	return connect.NewResponse(res), nil
}

func (f *fakeBroker) ListWebhooks(context.Context, *connect.Request[notifyv1.ListWebhooksRequest]) (*connect.Response[notifyv1.ListWebhooksResponse], error) {
	return connect.NewResponse(&notifyv1.ListWebhooksResponse{Next: f.next, Webhooks: []*notifyv1.Webhook{
		{Group: "a", Url: "https://a"}, {Group: "b", Url: "https://b", Disabled: true, DisabledReason: "the receiver answered 410 Gone"},
		{Group: "c", Url: "https://c", Problem: "secret key not configured: k1"}, {Group: "d", Url: "https://d", PausedUntilUs: 1e6},
	}}), nil
}

func (f *fakeBroker) GetWebhook(context.Context, *connect.Request[notifyv1.GetWebhookRequest]) (*connect.Response[notifyv1.GetWebhookResponse], error) {
	return nil, detailed(connect.CodeNotFound, &notifyv1.ErrorDetail{Reason: notifyv1.Reason_REASON_UNKNOWN_WEBHOOK, Message: `group "g" has no webhook: notify webhook set g --url URL`})
}

func (f *fakeBroker) TestWebhook(_ context.Context, r *connect.Request[notifyv1.TestWebhookRequest]) (*connect.Response[notifyv1.TestWebhookResponse], error) {
	res := &notifyv1.TestWebhookResponse{Id: "id-1", Status: 204, Acknowledged: true, Words: "status 204 after 3ms; a message would be acknowledged"}
	if r.Msg.GetGroup() == "refused" {
		res = &notifyv1.TestWebhookResponse{Id: "id-1", Words: "no answer: connection refused; a message would be sent again after a pause"}
	}
	return connect.NewResponse(res), nil
}

func (f *fakeBroker) RotateWebhook(_ context.Context, r *connect.Request[notifyv1.RotateWebhookRequest]) (*connect.Response[notifyv1.RotateWebhookResponse], error) {
	if r.Msg.KeepMs == nil || r.Msg.GetKeepMs() != 0 || !r.Msg.GetForce() {
		return nil, connect.NewError(connect.CodeInvalidArgument, nil)
	}
	return connect.NewResponse(&notifyv1.RotateWebhookResponse{Webhook: &notifyv1.Webhook{Group: r.Msg.GetGroup()}, Secret: "whsec_next"}), nil
}

func TestAWebhooksSecretIsShownOnceAndNeverAnArgument(t *testing.T) {
	f := startBroker(t)
	r := f.notify(t, "", "webhook", "set", "g", "--url", "https://x", "--concurrency", "3", "--request-timeout", "1500ms")
	r.want(t, daemon.ExitOK, "group\tg\nurl\thttps://x\nstate\tenabled\nconcurrency\t3\ntimeout\t1.5s\nin flight\t0\nsecret\tof 1970-01-01T00:00:01Z, sealed with key k1\nnew secret\twhsec_new\n")
	if !strings.Contains(r.err, "not shown again") {
		t.Errorf("stderr %q", r.err)
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("whsec_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, stdin := range map[string]string{path: "", "-": "whsec_stdin\n"} {
		if r := f.notify(t, stdin, "webhook", "set", "g", "--url", "https://x", "--secret-file", from); r.code != daemon.ExitOK || strings.Contains(r.out+r.err, "whsec_") {
			t.Errorf("from %s: %+v", from, r)
		}
	}
	got := strings.Join(f.settled, ", ")
	for _, want := range []string{"secret whsec_file", "secret whsec_stdin"} {
		if !strings.Contains(got, want) {
			t.Errorf("the broker got %s; want %s", got, want)
		}
	}
	f.notify(t, "", "webhook", "set", "g", "--secret-file", path+"x").want(t, daemon.ExitUsage, "")
	f.notify(t, "", "webhook", "rotate", "g", "--keep", "0s", "--force", "-o", "jsonl").want(t, daemon.ExitOK,
		`{"group":"g","url":"","state":"enabled","concurrency":0,"timeout_ms":0,"in_flight":0,"secrets":[],"secret":"whsec_next"}`+"\n")
}

func TestWebhooksAreListedWithWhatKeepsThemBack(t *testing.T) {
	f := startBroker(t)
	f.notify(t, "", "webhook", "ls").want(t, daemon.ExitOK, "a\tenabled\thttps://a\t\nb\tdisabled\thttps://b\tthe receiver answered 410 Gone\n"+
		"c\tbroken\thttps://c\tsecret key not configured: k1\nd\tpaused\thttps://d\tthe receiver wants nothing before 1970-01-01T00:00:01Z\n")
	f.notify(t, "", "webhook", "show", "g").want(t, daemon.ExitNotFound, "")
}

func TestATestOfAWebhookTellsWhatCameBackAndFailsIfThatIsNoAcknowledgement(t *testing.T) {
	f := startBroker(t)
	f.notify(t, "", "webhook", "test", "g").want(t, daemon.ExitOK, "group\tg\nwebhook-id\tid-1\nresult\tstatus 204 after 3ms; a message would be acknowledged\n")
	r := f.notify(t, "", "webhook", "test", "refused")
	r.want(t, daemon.ExitFailed, "group\trefused\nwebhook-id\tid-1\nresult\tno answer: connection refused; a message would be sent again after a pause\n")
	if !strings.Contains(r.err, "did not acknowledge") {
		t.Errorf("stderr %q", r.err)
	}
}
