package window_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"notifymirror/stream/window"
)

func TestMetricsTellWhatIsOpenAndWhatCameTooLate(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := window.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	w, err := window.New(window.Config{Size: 20 * time.Second, Slide: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	m.Observe("g", 3, w) // there is no watermark yet
	at := func(s int64, key string) {
		t.Helper()
		if _, err := w.Add(window.Event{Time: time.Unix(s, 0), Key: key}); err != nil {
			t.Fatal(err)
		}
		w.Due()
	}
	at(1000, "a")
	at(1030, "a")
	at(1030, "b")
	at(1025, "late for one of two windows")
	at(1001, "late for both")
	at(1001, "late for both")
	m.Observe("g", 3, w)
	m.Observe("g", 3, w) // counts nothing twice
	want := `# HELP notify_stream_late_records_total Events that came too late for some of their windows (merged into the others), or for all (dropped).
# TYPE notify_stream_late_records_total counter
notify_stream_late_records_total{action="dropped",group="g"} 2
notify_stream_late_records_total{action="merged",group="g"} 1
# HELP notify_stream_watermark_timestamp_seconds Event time up to which all windows are closed, Unix time.
# TYPE notify_stream_watermark_timestamp_seconds gauge
notify_stream_watermark_timestamp_seconds{group="g",partition="3"} 1030
# HELP notify_stream_window_keys Keys in all open windows; bounded by MaxCells.
# TYPE notify_stream_window_keys gauge
notify_stream_window_keys{group="g",partition="3"} 5
# HELP notify_stream_windows_open Windows that are not handed out.
# TYPE notify_stream_windows_open gauge
notify_stream_windows_open{group="g",partition="3"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	m.Forget("g", 3)
	if n, err := testutil.GatherAndCount(reg); n != 2 || err != nil {
		t.Errorf("%d series after Forget, error %v, want the two counters", n, err)
	}
	if _, err := window.NewMetrics(reg); err == nil {
		t.Error("a second Metrics on one registry: no error")
	}
}
