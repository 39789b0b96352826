package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Component is one thing that must be ready before a daemon is.
type Component struct {
	Name string
	// Ready returns nil, or why the component is not ready. It must not block.
	Ready func() error
}

var (
	errStarting = errors.New("starting")
	errStopping = errors.New("stopping")
)

// Ops is the listener for operators: /metrics; /livez, which asks nobody; /readyz, whose
// ?verbose lists the components; and, where the daemon has them, /status and /change. It
// speaks plain HTTP without authentication.
type Ops struct {
	listener   net.Listener
	server     *http.Server
	agent      atomic.Pointer[Agent]
	isStopping atomic.Bool
}

// ListenOps binds the address. It answers nothing until Serve.
func ListenOps(address string, registry *prometheus.Registry, logger *slog.Logger) (*Ops, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("ops_listen %s: %w: another address can be set by the key ops_listen", address, err)
	}
	o := &Ops{listener: listener}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		Registry:            registry,
		MaxRequestsInFlight: 4,
		Timeout:             20 * time.Second,
	}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", o.readyz)
	mux.HandleFunc("GET /status", o.status)
	mux.HandleFunc("POST /change", o.change)
	o.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return o, nil
}

// Addr is the address that is bound.
func (o *Ops) Addr() net.Addr { return o.listener.Addr() }

// Serve answers until the context ends, then lets running requests end for a second.
func (o *Ops) Serve(ctx context.Context) error {
	stopped := make(chan error, 1)
	cancelled := context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := o.server.Shutdown(limited); err != nil {
			stopped <- o.server.Close()
			return
		}
		stopped <- nil
	})
	err := o.server.Serve(o.listener)
	if cancelled() {
		return fmt.Errorf("ops listener: %w", err)
	}
	return <-stopped
}

// started gives the listener what /readyz and /status ask.
func (o *Ops) started(agent Agent) { o.agent.Store(&agent) }

// stopping makes /readyz answer 503 from now on.
func (o *Ops) stopping() { o.isStopping.Store(true) }

func (o *Ops) readyz(w http.ResponseWriter, r *http.Request) {
	var lines strings.Builder
	code := http.StatusOK
	for _, c := range o.components() {
		if err := c.Ready(); err != nil {
			code = http.StatusServiceUnavailable
			fmt.Fprintf(&lines, "[-]%s %s\n", c.Name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	switch {
	case r.URL.Query().Has("verbose"), code != http.StatusOK:
		fmt.Fprint(w, lines.String())
	default:
		fmt.Fprintln(w, "ok")
	}
}

// components are the agent's and the process's own.
func (o *Ops) components() []Component {
	process := Component{"process", func() error { return nil }}
	agent := o.agent.Load()
	switch {
	case o.isStopping.Load():
		process.Ready = func() error { return errStopping }
	case agent == nil:
		process.Ready = func() error { return errStarting }
	}
	if agent == nil {
		return []Component{process}
	}
	return append([]Component{process}, agent.Components...)
}

func (o *Ops) status(w http.ResponseWriter, r *http.Request) {
	agent := o.agent.Load()
	switch {
	case agent == nil:
		http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
		return
	case agent.Status == nil:
		http.NotFound(w, r)
		return
	}
	writeJSON(w, agent.Status())
}

// changeLimit is how long a change may be waited for; what has begun to be written takes longer.
const changeLimit = 25 * time.Second

// change passes a request on to the agent. A page in somebody's browser can post to loopback,
// but not JSON unless it is asked first, which is never answered.
func (o *Ops) change(w http.ResponseWriter, r *http.Request) {
	agent := o.agent.Load()
	switch {
	case agent == nil:
		http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
		return
	case agent.Change == nil:
		http.NotFound(w, r)
		return
	case r.Header.Get("Content-Type") != "application/json":
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // an answer that comes late must come
	ctx, cancel := context.WithTimeout(r.Context(), changeLimit)
	defer cancel()
	answer, err := agent.Change(ctx, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	writeJSON(w, answer)
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// CheckListen returns a problem when the address cannot be listened on as configured: it
// does not parse, or is not loopback and insecure is not set.
func CheckListen(key, address string, insecure bool) []Problem {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return []Problem{{key, fmt.Sprintf("%q: must be host:port, such as 127.0.0.1:7700", address)}}
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return []Problem{{key, fmt.Sprintf("%q: the port must be 0 to 65535", address)}}
	}
	if insecure || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return []Problem{{key, fmt.Sprintf("%q is not loopback, and there is no authentication yet: "+
		"use 127.0.0.1, or write insecure: true if everybody who can reach it may use it", address)}}
}
