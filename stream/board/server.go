package board

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

//go:embed page
var page embed.FS

// Deps are what a Server takes from its program.
type Deps struct {
	// Logger takes changes of state. Default: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: there are none.
	Registerer prometheus.Registerer
}

// A Server is any number of boards and their pages. It is made by New and runs once.
type Server struct {
	sources *sources
	boards  map[string]*live
	metrics *metrics
}

// New makes the boards of a valid configuration; what Config.Validate finds is an error.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	zone, err := cfg.location()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("board: metrics: %w", err)
	}
	s := &Server{sources: newSources(cfg), boards: map[string]*live{}, metrics: m}
	version := pageVersion()
	for name, b := range cfg.Boards {
		s.boards[name] = &live{
			name: name, board: b.withDefaults(name), cfg: &cfg, zone: zone,
			page: version + b.layout(), logger: deps.Logger, metrics: m, sources: s.sources, feed: newFeed(),
		}
	}
	return s, nil
}

// Handler serves the pages; it needs Run.
func (s *Server) Handler() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the name is a constant
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	mux.Handle("GET /page/", http.StripPrefix("/page/", http.FileServerFS(files)))
	mux.HandleFunc("GET /boards/{board}", s.known(func(w http.ResponseWriter, r *http.Request, _ *live) {
		http.ServeFileFS(w, r, files, "board.html")
	}))
	mux.HandleFunc("GET /boards/{board}/events", s.known(s.events))
	mux.HandleFunc("POST /boards/{board}/truth", s.known(s.truth))
	return http.NewCrossOriginProtection().Handler(headers(mux))
}

// headers keep a page to what this server serves.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// known finds the board that a path names.
func (s *Server) known(next func(http.ResponseWriter, *http.Request, *live)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l := s.boards[r.PathValue("board")]
		if l == nil {
			http.Error(w, fmt.Sprintf("no board %q; the boards are %q", r.PathValue("board"), s.names()), http.StatusNotFound)
			return
		}
		next(w, r, l)
	}
}

func (s *Server) names() []string { return slices.Sorted(maps.Keys(s.boards)) }

// index lists the boards, or leads to the only one.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	names := s.names()
	if len(names) == 1 {
		http.Redirect(w, r, "/boards/"+names[0], http.StatusFound)
		return
	}
	t, err := template.ParseFS(page, "page/index.html")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	list := make([]map[string]string, len(names))
	for i, name := range names {
		b := s.boards[name].board
		list[i] = map[string]string{"Name": name, "Title": b.Title, "Topic": b.Topic}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := t.Execute(w, list); err != nil {
		s.boards[names[0]].logger.DebugContext(r.Context(), "index not written", "err", err)
	}
}

func (s *Server) truth(w http.ResponseWriter, r *http.Request, l *live) {
	truth, err := l.check(r.Context())
	switch {
	case errors.Is(err, ErrReading), errors.Is(err, ErrChecking):
		http.Error(w, err.Error(), http.StatusConflict)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(truth) // whoever asked is gone
}

// Run serves Handler, or what the program has put around it, on a listener, which it closes,
// until ctx ends.
func (s *Server) Run(ctx context.Context, listener net.Listener, handler http.Handler) error {
	g, ctx := errgroup.WithContext(ctx)
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // streams end with it
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return smallBuffer(ctx, c) },
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("listener: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(limited) != nil {
			return server.Close()
		}
		return nil
	})
	g.Go(func() error { return s.sources.run(ctx) })
	for _, l := range s.boards {
		g.Go(func() error { return l.run(ctx) })
	}
	return g.Wait()
}

// layout names what a page makes once: its panels and columns. A page that was made for
// others must not keep them when the server comes back with another configuration.
func (b *Board) layout() string {
	text := fmt.Sprint(b.money(), labels(b.Bars), labels(b.Top), labels(b.Recent))
	sum := sha256.Sum256([]byte(text))
	return "-" + hex.EncodeToString(sum[:4])
}

func labels(fields []Field) (list []string) {
	for _, f := range fields {
		list = append(list, strconv.Quote(f.Label))
	}
	return list
}

// pageVersion names the version of the page's files.
func pageVersion() string {
	sum := sha256.New()
	err := fs.WalkDir(page, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := page.ReadFile(path)
		sum.Write(content)
		return err
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}
