package board_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"notifymirror/stream/board"
)

// holds is what a page holds when its garbage is gone.
type holds struct {
	nodes, listeners int64
	heap             float64 // bytes
}

func (c chromium) holds() (h holds) {
	c.t.Helper()
	var errs [3]error
	var dom memory.GetDOMCountersResult
	var heap runtime.GetHeapUsageResult
	_, errs[0] = chromedp.Call(c.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	dom, errs[1] = chromedp.Call(c.ctx, memory.GetDOMCounters, cdp.Empty{})
	heap, errs[2] = chromedp.Call(c.ctx, runtime.GetHeapUsage, cdp.Empty{})
	for _, err := range errs {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return holds{dom.Nodes, dom.JsEventListeners, heap.UsedSize}
}

// A page is open for days: the frames of each go over it, all of them drawn, with values and rows that were never there
// before. It holds no more at the end than after the first day.
func TestAPageThatIsOpenForDaysHoldsNoMoreThanOneFrame(t *testing.T) {
	const framesADay, days = 400, 20
	s, err := board.New(board.Config{Kafka: board.KafkaConfig{Brokers: []string{"127.0.0.1:1"}}, Boards: map[string]board.Board{"day": {
		Topic: "trades", Amount: field(t, "json.amount"), Bars: fields(t, "headers.region"), Top: fields(t, "key"), Recent: fields(t, "key")}}}, board.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	frames, err := board.Day(s, "day", time.Now().Add(-24*time.Hour), framesADay)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(frames)
	if err != nil {
		t.Fatal(err)
	}
	board.Show(s, "day", frames[0])
	server := httptest.NewServer(s.Handler())
	c := browser(t)
	t.Cleanup(server.Close) // before the browser's, whose stream it would wait for
	t.Cleanup(server.CloseClientConnections)
	c.do(chromedp.Navigate(server.URL + "/boards/day"))
	c.sees(`document.getElementById("total").dataset.count === "5"`)
	// Frames are drawn at the rate of the screen, and the list at that of the eye: here each is.
	c.do(chromedp.Evaluate[chromedp.Void](`window.requestAnimationFrame = (draw) => { draw(); return 0; }; window.day = ` + string(text)))
	day := func() {
		t.Helper()
		shown := get[string](c, `(() => { for (const data of day) { listed = -Infinity; source.onmessage({data}); } return document.getElementById("total").dataset.count + " " + document.querySelector(".recent td:nth-child(2)").textContent; })()`)
		if want := fmt.Sprintf("%d row %d", 5*framesADay, 5*framesADay-1); shown != want {
			t.Fatalf("the page shows %q, want %q", shown, want)
		}
	}
	day()
	day()
	first := c.holds()
	for range days {
		day()
	}
	last := c.holds()
	t.Logf("after the second day %+v, %d days later %+v", first, days, last)
	if last.nodes > first.nodes+first.nodes/10 || last.listeners > first.listeners || last.heap > first.heap+1<<20 {
		t.Errorf("%d frames made it grow from %+v to %+v", days*framesADay, first, last)
	}
}
