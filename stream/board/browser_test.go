package board_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"notifymirror/stream/board"
)

// shotsEnv names a directory for screenshots; without it they are made and dropped.
const shotsEnv = "NOTIFY_TEST_SHOTS"

// chromium is a page in a headless browser with a profile of its own.
type chromium struct {
	t   *testing.T
	ctx context.Context
}

func browser(t *testing.T) chromium {
	t.Helper()
	profile, err := os.MkdirTemp("", "board-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.UserDataDir(profile))
	for _, flag := range []string{"no-sandbox", "disable-gpu", "disable-quic", "disable-component-update"} {
		opts = append(opts, chromedp.Flag(flag, true))
	}
	ctx, stop := context.WithTimeout(context.Background(), 4*patience)
	ctx, stopAll := chromedp.NewExecAllocator(ctx, opts...)
	ctx, _ = chromedp.NewContext(ctx, chromedp.WithErrorf(t.Logf))
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("end of the browser: %v", err)
		}
		stopAll()
		stop()
		if err := os.RemoveAll(profile); err != nil { // a last process may still write
			t.Log(err)
		}
	})
	c := chromium{t, ctx}
	c.do(chromedp.Navigate("about:blank"))
	return c
}

// do does something in the browser.
func (c chromium) do(actions ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	if err := chromedp.Do(c.ctx, actions...); err != nil {
		c.t.Fatal(err)
	}
}

// get evaluates an expression in the page.
func get[T any](c chromium, expression string) T {
	c.t.Helper()
	v, err := chromedp.Run(c.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		c.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// sees waits until an expression about the page is true.
func (c chromium) sees(expression string) {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience); !get[bool](c, expression); <-tick.C {
		if time.Now().After(late) {
			c.t.Fatalf("not on the page: %s\n%s", expression, get[string](c, "document.body.dataset.state + ': ' + document.body.innerText"))
		}
	}
}

// shot keeps a screenshot.
func (c chromium) shot(name string) {
	c.t.Helper()
	png, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		c.t.Fatal(err)
	}
	if len(png) < 5000 {
		c.t.Errorf("%s: %d bytes are no picture of a board", name, len(png))
	}
	if dir := os.Getenv(shotsEnv); dir != "" {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// on sets the screen's size and the theme that the system prefers.
func (c chromium) on(width, height int64, phone bool, theme string) {
	c.t.Helper()
	ratio := 1.0
	if phone {
		ratio = 2
	}
	_, err := chromedp.Call(c.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: ratio, Mobile: phone,
	})
	if err == nil {
		_, err = chromedp.Call(c.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
		})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// trade is a sample message with an amount in cents.
func trade(n int, at time.Time) msg {
	symbols := []string{"ACME", "GLOBEX", "INITECH", "UMBRELLA", "HOOLI", "STARK", "WAYNE", "WONKA", "TYRELL", "CYBERDYNE", "SOYLENT", "OSCORP"}
	symbol := symbols[int(float64(len(symbols))*rand.Float64()*rand.Float64())]
	cents := 1000 + rand.IntN(900_000)
	return msg{
		key: symbol, at: at,
		headers: map[string]string{"region": []string{"Asia", "Europe", "Americas", "Africa"}[min(3, n%7%5)]},
		body: map[string]any{"symbol": symbol, "side": []string{"buy", "sell"}[n%2],
			"amount": fmt.Sprintf("%d.%02d", cents/100, cents%100)},
	}
}

// wholeAndLive is a page that has everything, and has faded in.
const wholeAndLive = `document.body.dataset.state === "live" && document.querySelector("#curve canvas") !== null &&
	document.querySelector(".recent tbody")?.rows.length === 9 && getComputedStyle(document.querySelector("main")).opacity === "1"`

// A message that is published is on the screen; when nothing comes any more the page
// grows grey and says since when; it can be read on a phone and on a wall, by day and night.
func TestPageShowsWhatComesAndGrowsGrey(t *testing.T) {
	l := newLog(t, newName(), 4)
	begun := time.Now().Add(-4 * time.Minute)
	var past []msg
	for i := range 3000 {
		past = append(past, trade(i, begun.Add(time.Duration(i)*70*time.Millisecond+time.Duration(rand.IntN(8000))*time.Millisecond)))
	}
	l.write(past...)
	s := serve(t, "", board.Config{Boards: map[string]board.Board{"trades": {
		Title: "Trades", Topic: l.topic, Amount: field(t, "json.amount"), Decimals: 2, Unit: "EUR",
		Bars: fields(t, "headers.region", "json.side"), Top: fields(t, "key as Symbol"), Recent: fields(t, "key as Symbol", "json.side"),
	}}})
	c := browser(t)
	c.on(1920, 1080, false, "light")
	c.do(chromedp.Navigate(s.url + "/"))
	c.sees(`document.getElementById("total").dataset.count === "3000"`)

	stop := l.writeOn(50 * time.Millisecond)
	c.sees(`Number(document.getElementById("total").dataset.count) > 3010 && document.body.dataset.state === "live"`)
	c.sees(`document.getElementById("title").textContent === "Trades"`)
	for _, theme := range []string{"light", "dark"} {
		c.on(1920, 1080, false, theme)
		c.do(chromedp.Reload())
		c.sees(wholeAndLive)
		c.shot("wall-" + theme)
		c.on(390, 844, true, theme)
		c.do(chromedp.Reload())
		c.sees(wholeAndLive)
		c.sees(`document.documentElement.scrollWidth <= innerWidth`)
		c.shot("phone-" + theme)
	}
	count := 3000 + stop()
	c.sees(`document.getElementById("total").dataset.count === "` + strconv.Itoa(count) + `"`)
	c.sees(`document.body.dataset.state === "stale" && document.getElementById("state").textContent.includes("standing still since")`)
	c.on(1920, 1080, false, "light")
	c.shot("wall-grey")

	c.do(chromedp.Click("#check"))
	c.sees(`document.getElementById("truth").open && document.getElementById("truth-verdict").textContent === "Equal to the last digit"`)
	c.shot("truth")
}

// writeOn writes a trade of now again and again, until it is stopped and says how many they were.
func (l *log) writeOn(every time.Duration) (stop func() int) {
	writing, cancel := context.WithCancel(l.t.Context())
	written := make(chan int)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
				l.write(trade(n, time.Now()))
			case <-writing.Done():
				written <- n
				return
			}
		}
	}()
	return func() int {
		cancel()
		return <-written
	}
}

// Also when the page gives a dead connection up and opens another, its numbers are as old as
// they were; they live again with the next server, whatever its clock says.
func TestAPageWhoseServerIsGoneStaysGreyUntilAnotherAnswers(t *testing.T) {
	l := newLog(t, newName(), 1)
	l.write(trade(1, time.Now()))
	cfg := board.Config{Boards: map[string]board.Board{"b": {Topic: l.topic}}}
	s := serve(t, "", cfg)
	c := browser(t)
	c.do(chromedp.Navigate(s.url + "/boards/b"))
	c.sees(`document.getElementById("total").dataset.count === "1"`)
	if bad := get[[]int](c, `[1, 2, 3].map(() => {
		frame = {...frame, groups: [{group: "g", waiting: 1, in_flight: 0}]};
		drawSources();
		return document.querySelectorAll("#sources .bad").length;
	})`); slices.Max(bad) > 0 {
		t.Errorf("a group that is well is shown as bad in %v of three frames", bad)
	}
	s.stop()
	c.sees(`document.body.dataset.state === "stale" && getComputedStyle(document.getElementById("sources")).opacity < 1`)
	if state := get[string](c, `received = -Infinity; watch(); document.body.dataset.state`); state != "stale" {
		t.Errorf("with a new connection and no frame the page is %q", state)
	}
	// The page's clock is a day behind that of the server before.
	c.do(chromedp.Evaluate[chromedp.Void](`offset -= 24 * 3600 * 1000`))
	serve(t, strings.TrimPrefix(s.url, "http://"), cfg)
	stop := l.writeOn(50 * time.Millisecond)
	c.sees(`Number(document.getElementById("total").dataset.count) >= 2 && document.body.dataset.state === "live"`)
	stop()
}

// Over days the page's clock gains on the server's, and the page stays alive.
func TestClocksThatDriftApartDoNotGreyAPage(t *testing.T) {
	l := newLog(t, newName(), 1)
	s := serve(t, "", board.Config{Boards: map[string]board.Board{"b": {Topic: l.topic}}})
	c := browser(t)
	c.do(chromedp.Navigate(s.url + "/boards/b"))
	c.sees(`frame !== null`)
	ages := get[[]float64](c, `(() => {
		source.close();
		let clock = now();
		performance.now = () => clock;
		const ages = [];
		for (const gain of [1e-4, 1e-2]) { // a bad clock, and frames that take ever longer
			fresh = true;
			for (let i = 0, server = 1e12; i < 86400; i++, clock += 1000 * (1 + gain), server += 1000)
				source.onmessage({data: JSON.stringify({...frame, now: server, as_of: server})});
			ages.push(age());
		}
		return ages;
	})()`)
	if ages[0] > 1500 || ages[1] < 3000 {
		t.Errorf("after a day of drift the page is %.0f ms old, behind a line that slows down %.0f ms", ages[0], ages[1])
	}
}
