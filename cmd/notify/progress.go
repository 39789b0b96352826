package main

import (
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"notifymirror/stream"
)

// showProgress moves a bar on the terminal while a consumer reads to its end, and returns
// what ends it.
func (a *app) showProgress(c *stream.Consumer, what string) (hide func()) {
	if a.quiet || !terminal(a.err) {
		return func() {}
	}
	stop := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		var bar *progressbar.ProgressBar
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ended := false; !ended; {
			select {
			case <-tick.C:
			case <-stop:
				ended = true
			}
			done, all := c.Progress()
			if all == 0 {
				continue // not known yet, or nothing to read
			}
			if bar == nil {
				bar = progressbar.NewOptions64(all, progressbar.OptionSetWriter(a.err), progressbar.OptionSetDescription(what),
					progressbar.OptionEnableColorCodes(false), progressbar.OptionClearOnFinish())
			}
			_ = bar.Set64(done)
		}
		if bar != nil {
			_ = bar.Finish()
		}
	})
	return func() { close(stop); shown.Wait() }
}
