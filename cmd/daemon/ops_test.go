package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newOps(t *testing.T, registry *prometheus.Registry) *Ops {
	t.Helper()
	ops, err := ListenOps("127.0.0.1:0", registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// get returns the code and body of an answer.
func get(t *testing.T, ops *Ops, path string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + ops.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestProbesTellStartingReadyAndStopping(t *testing.T) {
	ops := newOps(t, NewRegistry(ReadBuild()))
	expect := func(stage, path string, code int, says string) {
		t.Helper()
		if got, body := get(t, ops, path); got != code || !strings.Contains(body, says) {
			t.Errorf("%s: %s: %d %q, want %d with %q", stage, path, got, body, code, says)
		}
	}
	ready := make(chan error, 1)
	startNow, started := make(chan struct{}), make(chan struct{})
	stopped := make(chan struct{})
	ctx, signal := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Process{Ops: ops, Logger: slog.New(slog.DiscardHandler),
			Start: func(context.Context) (Agent, error) {
				<-startNow
				return Agent{
					Run: func(ctx context.Context) error { close(started); <-ctx.Done(); <-stopped; return ctx.Err() },
					Components: []Component{{"store/a", func() error { return nil }}, {"mirror", func() error {
						err := <-ready
						ready <- err
						return err
					}}},
					Status: func() any { return map[string]int{"seq": 7} },
				}, nil
			}})
	}()
	expect("starting", "/livez", 200, "ok")
	expect("starting", "/readyz", 503, "[-]process starting")
	expect("starting", "/status", 503, "starting")
	expect("starting", "/metrics", 200, "notify_build_info{")
	close(startNow)
	<-started
	ready <- errors.New("waits for Kafka")
	expect("not ready", "/readyz", 503, "[+]store/a ok\n[-]mirror waits for Kafka\n")
	<-ready
	ready <- nil
	expect("ready", "/readyz", 200, "ok")
	expect("ready", "/readyz?verbose", 200, "[+]process ok\n[+]store/a ok\n[+]mirror ok\n")
	expect("ready", "/status", 200, `{"seq":7}`)
	expect("ready", "/nothing", 404, "")
	signal()
	deadline := time.Now().Add(10 * time.Second)
	for code := 200; code == 200; { // the signal is seen in a moment
		if code, _ = get(t, ops, "/readyz"); time.Now().After(deadline) {
			t.Error("still ready 10 s after the signal")
			break
		}
	}
	expect("stopping", "/readyz", 503, "[-]process stopping")
	expect("stopping", "/livez", 200, "ok")
	close(stopped)
	if err := <-ended; err != nil {
		t.Errorf("a planned stop returns %v", err)
	}
	if _, err := net.Dial("tcp", ops.Addr().String()); err == nil {
		t.Error("the ops listener outlives Run")
	}
}

// The answer to a change comes also where that took longer than other answers may.
func TestAChangeIsAnsweredHoweverLateItIsMade(t *testing.T) {
	ops := newOps(t, prometheus.NewRegistry())
	ops.server.WriteTimeout = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ops.Serve(ctx) }()
	ops.agent.Store(&Agent{Change: func(ctx context.Context, _ []byte) (any, error) {
		late, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		<-late.Done()
		return "made", nil
	}})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Post("http://"+ops.Addr().String()+"/change", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "\"made\"\n" {
		t.Errorf("%q, %v", body, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAgentWorksOnForTheShutdownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, signal := context.WithCancel(t.Context())
		var worked time.Duration
		start := time.Now()
		p := Process{Ops: new(Ops), Logger: slog.New(slog.DiscardHandler), ShutdownDelay: 7 * time.Second,
			Start: func(context.Context) (Agent, error) {
				return Agent{Run: func(ctx context.Context) error {
					<-ctx.Done()
					worked = time.Since(start)
					return ctx.Err()
				}}, nil
			}}
		signal()
		work, stop := context.WithCancel(t.Context())
		defer stop()
		// A signal during the start cancels the start alone; this start does not look.
		if err := p.work(ctx, work, stop); err != nil || worked != 7*time.Second {
			t.Errorf("error %v after %s", err, worked)
		}
	})
}

func TestErrorsOfStartAndRunEndTheProcess(t *testing.T) {
	broken := WithExitCode(ExitDenied, errors.New("broken"))
	for name, start := range map[string]func(context.Context) (Agent, error){
		"start": func(context.Context) (Agent, error) { return Agent{}, broken },
		"run": func(context.Context) (Agent, error) {
			return Agent{Run: func(context.Context) error { return broken }}, nil
		},
	} {
		err := Run(t.Context(), Process{Ops: newOps(t, prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler), Start: start})
		if ExitCode(err) != ExitDenied || err.Error() != "broken" {
			t.Errorf("%s: code %d, error %q", name, ExitCode(err), err)
		}
	}
}

func TestSignalDuringStartIsAPlannedStop(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	err := Run(ctx, Process{Ops: newOps(t, prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		Start: func(ctx context.Context) (Agent, error) {
			signal()
			<-ctx.Done()
			return Agent{}, ctx.Err()
		}})
	if err != nil {
		t.Errorf("error: %v", err)
	}
}

func TestOnlyLoopbackWithoutInsecure(t *testing.T) {
	for address, good := range map[string]bool{
		"127.0.0.1:7700": true, "127.1.2.3:0": true, "localhost:7700": true, "[::1]:7700": true,
		"0.0.0.0:7700": false, ":7700": false, "[::]:7700": false, "10.0.0.1:7700": false, "db.example:7700": false,
	} {
		if got := len(CheckListen("listen", address, false)) == 0; got != good {
			t.Errorf("%s allowed: %t", address, got)
		}
		if problems := CheckListen("listen", address, true); len(problems) > 0 {
			t.Errorf("%s with insecure: %v", address, problems)
		}
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "7700"} {
		if len(CheckListen("listen", address, true)) == 0 {
			t.Errorf("%q is accepted", address)
		}
	}
}

func TestTakenPortIsNamedWithItsKey(t *testing.T) {
	taken := newOps(t, prometheus.NewRegistry())
	defer taken.listener.Close()
	_, err := ListenOps(taken.Addr().String(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()) || !strings.Contains(err.Error(), "ops_listen") {
		t.Errorf("error: %v", err)
	}
}

func TestMetricNamesFollowTheConventions(t *testing.T) {
	problems, err := testutil.GatherAndLint(NewRegistry(ReadBuild()), "notify_build_info")
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
