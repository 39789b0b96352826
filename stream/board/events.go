package board

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	// writeLimit is how long a viewer may take to take one frame.
	writeLimit = 5 * time.Second
	// mostViewers bounds the pages that look at one board.
	mostViewers = 500
	// writeBuffer is what the system holds for a viewer: a few frames, so that one that
	// does not read is noticed soon and has little old to show.
	writeBuffer = 64 << 10
)

func smallBuffer(ctx context.Context, c net.Conn) context.Context {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBuffer) // an optimisation
	}
	return ctx
}

// events sends a board's frames as server-sent events until the viewer is gone, takes too
// long, or the server stops. Each frame is whole, and the latest: a slow viewer gets fewer.
func (s *Server) events(w http.ResponseWriter, r *http.Request, l *live) {
	defer func() { s.metrics.viewers.WithLabelValues(l.name).Set(float64(l.viewers.Add(-1))) }()
	viewers := l.viewers.Add(1)
	s.metrics.viewers.WithLabelValues(l.name).Set(float64(viewers))
	if viewers > mostViewers {
		http.Error(w, "too many pages look at this board", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for proxies
	rc := http.NewResponseController(w)
	for number := uint64(0); ; {
		frame, n, ok := l.feed.next(r.Context(), number)
		if !ok {
			return
		}
		number = n
		if err := send(w, rc, frame, n); err != nil {
			if r.Context().Err() == nil {
				s.metrics.cut.WithLabelValues(l.name).Inc()
			}
			return
		}
	}
}

// send writes one event within writeLimit.
func send(w http.ResponseWriter, rc *http.ResponseController, frame []byte, number uint64) error {
	if err := rc.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	event := make([]byte, 0, len(frame)+40)
	event = append(event, "id: "...)
	event = strconv.AppendUint(event, number, 10)
	event = append(event, "\ndata: "...)
	event = append(append(event, frame...), "\n\n"...)
	if _, err := w.Write(event); err != nil {
		return err
	}
	return rc.Flush()
}
