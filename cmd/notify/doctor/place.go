package doctor

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"notifymirror/notifyd/finding"
)

// clockTolerance is how far a daemon's clock may be from ours. It tells whole seconds.
const clockTolerance = 2 * time.Second

// check compares a daemon's clock with ours.
func (d Daemon) check(ctx context.Context) []finding.Finding {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.Ops+"/livez", nil)
	if err != nil {
		return nil // an address that the daemon refuses itself
	}
	asked := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return []finding.Finding{{Severity: finding.Note, Subject: fmt.Sprintf("%s does not answer at %s", d.Name, d.Ops),
			Why: "so its clock was not looked at", Mend: byHand("start it, or run this where it can be reached")}}
	}
	took := time.Since(asked)
	resp.Body.Close()
	told, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return nil
	}
	return d.offset(told.Sub(asked), took)
}

// offset judges a clock that tells whole seconds; took is how long the question took.
func (d Daemon) offset(offset, took time.Duration) []finding.Finding {
	if offset > -clockTolerance && offset < clockTolerance+took {
		return nil
	}
	return []finding.Finding{{Severity: finding.Warning,
		Subject: fmt.Sprintf("the clock of %s at %s differs from this machine's by about %s", d.Name, d.Ops, offset.Round(time.Second)),
		Why:     "so ages and delays in its metrics are wrong by as much",
		Mend:    byHand("have all machines follow the same time servers (chrony or ntpd)")}}
}

// check warns of a disk that is nearly full.
func (d Disk) check() []finding.Finding {
	path := d.Path
	var fs syscall.Statfs_t
	for syscall.Statfs(path, &fs) != nil {
		parent := filepath.Dir(path)
		if parent == path {
			return nil
		}
		path = parent
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free >= d.Need {
		return nil
	}
	return []finding.Finding{{Severity: finding.Warning, Subject: fmt.Sprintf("the disk of %s has %d MiB free", d.Path, free>>20),
		Why: fmt.Sprintf("too few for %s, which wants %d MiB", d.For, d.Need>>20), Mend: byHand("make room there, or name another directory")}}
}
