package board_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"notifymirror/stream/board"
)

// hard is what messages may hold, and a page has to bear.
var hard = []string{
	"محمد بن عبد الله للتجارة",
	"שלום עולם",
	"👩‍👩‍👧‍👦 🇨🇭 family",
	"株式会社日本取引所グループ・東京証券取引所",
	strings.Repeat("Donaudampfschifffahrts", 12),
	strings.Repeat("with spaces ", 30),
	"<img src=x onerror=document.title='taken'>",
	"<script>document.title='taken'</script>",
	"line\nbreak\tand tab",
	"Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!",
	"\u202Eright to left by force",
	"",
}

// Names in any script, of any length, markup, and sums below zero fit a phone, a wall and a
// large wall, and are text.
func TestHardContentIsTextAndFits(t *testing.T) {
	l := newLog(t, newName(), 2)
	begun := time.Now().Add(-time.Minute)
	var past []msg
	for i := range 600 {
		name := hard[i%len(hard)]
		past = append(past, msg{key: "k" + name, at: begun.Add(time.Duration(i) * 100 * time.Millisecond),
			headers: map[string]string{"region": name},
			body:    map[string]any{"name": name, "amount": fmt.Sprintf("-%d.%02d", 987_654_321_012+i, i%100)}})
	}
	l.write(past...)
	s := serve(t, "", board.Config{Boards: map[string]board.Board{"hard": {
		Title: hard[0] + " " + hard[4], Topic: l.topic, Amount: field(t, "json.amount"), Decimals: 2, Unit: "EUR",
		Bars: fields(t, "headers.region"), Top: fields(t, "json.name as Name"), Recent: fields(t, "json.name as Name", "headers.region"),
	}}})
	c := browser(t)
	c.on(1920, 1080, false, "light")
	c.do(chromedp.Navigate(s.url + "/boards/hard"))
	c.sees(`document.getElementById("total").dataset.count === "600"`)
	if got := get[string](c, `document.getElementById("total").textContent`); !strings.ContainsAny(got, "-−") {
		t.Errorf("a sum below zero is shown as %q", got)
	}
	if got := get[[]string](c, `[...document.querySelectorAll(".top .percent, .bars .share")].map(e => e.textContent || e.style.width)`); !slices.Contains(got, "8.3 %") || !slices.Contains(got, "100%") {
		t.Errorf("parts of a sum below zero: %q", got)
	}
	for _, screen := range []struct {
		name          string
		width, height int64
		phone         bool
	}{{"phone", 390, 844, true}, {"small-phone", 320, 568, true}, {"wall", 1920, 1080, false}, {"large-wall", 3840, 2160, false}} {
		c.on(screen.width, screen.height, screen.phone, "dark")
		c.do(chromedp.Reload())
		c.sees(wholeAndLiveOrGrey)
		c.shot("hard-" + screen.name)
		if over := get[[]string](c, overflowing); len(over) > 0 {
			t.Errorf("%s: out of its place: %q", screen.name, over)
		}
	}
	if title := get[string](c, `document.title`); title == "taken" {
		t.Error("a message's text ran as a script")
	}
}

// wholeAndLiveOrGrey is a page that has everything.
const wholeAndLiveOrGrey = `document.querySelector("#curve canvas") !== null &&
	document.querySelector(".recent tbody")?.rows.length === 9 && ["live", "stale"].includes(document.body.dataset.state) && getComputedStyle(document.querySelector("main")).opacity !== "0"`

// overflowing is what reaches beyond the screen's sides.
const overflowing = `[...document.querySelectorAll("body *")].filter(e => {
	const r = e.getBoundingClientRect();
	for (let p = e.parentElement; p; p = p.parentElement)
		if (getComputedStyle(p).overflowX !== "visible") return false;
	return r.width > 0 && (r.right > innerWidth + 1 || r.left < -1);
}).map(e => e.tagName + "." + e.className + ": " + e.textContent.slice(0, 40))`
