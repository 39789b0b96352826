package mirror

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"notifymirror/canal"
)

// lag knows the latest instant for which everything committed before it is in Kafka, and the
// place in the binlog behind what is. Both move with what is settled: a transaction's commit
// time, or the time of a heartbeat, which says that all was sent. So they stand still, and the
// lag grows, while the stream is cut off. Instants are by the server's clock, which is that of
// commit times; now is a parameter, by ours.
type lag struct {
	mu sync.Mutex
	// upTo is zero before anything is known, and a guess until the first transaction is read.
	upTo  time.Time
	guess bool
	// settledAt and readAt are behind what is in Kafka, and what was read.
	settledAt, readAt canal.Place
	// survey is what the server said last, and expire after what time it drops binlog; 0: never.
	survey canal.Survey
	expire time.Duration
}

// start says that the store is read on from where what was committed at that instant is in
// Kafka; zero when nothing is.
func (l *lag) start(committed, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if committed.IsZero() {
		committed = now.Add(l.survey.Clock)
	}
	if l.upTo.IsZero() || committed.After(l.upTo) {
		l.upTo = committed
	}
	l.guess, l.settledAt, l.readAt = true, canal.Place{}, canal.Place{}
}

// read says that a transaction was read: all before the first one is in Kafka.
func (l *lag) read(committed time.Time, end canal.Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guess {
		l.upTo, l.guess, l.settledAt = committed, false, end
	}
	l.readAt = end
}

// beat is the instant of a heartbeat that came at a time of our clock.
func (l *lag) beat(came time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return came.Add(l.survey.Clock)
}

// settled says that everything committed before that instant is in Kafka, and all that is in
// the binlog before that place; the zero place does not move it.
func (l *lag) settled(instant time.Time, end canal.Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if instant.After(l.upTo) {
		l.upTo = instant
	}
	if l.guess = false; end.File != "" {
		l.settledAt = end
	}
}

// surveyed takes over what the server says of itself.
func (l *lag) surveyed(s canal.Survey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.survey = s
}

// expires takes over after what time the server drops binlog; 0: never.
func (l *lag) expires(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire = after
}

// reset forgets what is known.
func (l *lag) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upTo, l.guess, l.settledAt, l.readAt = time.Time{}, false, canal.Place{}, canal.Place{}
}

// age is how long ago a time of the server's clock was.
func (l *lag) age(of, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, now.Add(l.survey.Clock).Sub(of))
}

// A lagging is how far a mirror is behind its store.
type lagging struct {
	// behind is the age of the last instant known to be wholly in Kafka; 0 before any is.
	behind time.Duration
	// bytes of binlog are not in Kafka yet, and files of it are older than the first of them.
	// NaN: not known, since nothing was read yet, or the account may not list the files.
	bytes, files float64
	// headroom is how many seconds the server keeps what is not copied yet; infinite when it
	// keeps all.
	headroom float64
	// clock is the server's minus ours.
	clock time.Duration
}

// at is the lag at a time.
func (l *lag) at(now time.Time) lagging {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := lagging{bytes: math.NaN(), files: math.NaN(), headroom: math.Inf(1), clock: l.survey.Clock}
	if !l.upTo.IsZero() {
		out.behind = max(0, now.Add(l.survey.Clock).Sub(l.upTo))
	}
	if l.expire > 0 {
		out.headroom = (l.expire - out.behind).Seconds()
	}
	if l.settledAt.File != "" && l.survey.Logs != nil {
		files, settled := before(l.survey.Logs, l.settledAt)
		_, read := before(l.survey.Logs, l.readAt)
		_, end := before(l.survey.Logs, canal.Place{})
		out.bytes, out.files = float64(max(0, max(read, end)-settled)), float64(files)
	}
	return out
}

// before is how many of the files, and how many bytes of binlog, are before a place. One that
// is not in the list is older than all of them, or newer; the zero place is their end.
func before(logs []canal.LogFile, p canal.Place) (files int, bytes int64) {
	if i := slices.IndexFunc(logs, func(f canal.LogFile) bool { return f.Name == p.File }); i >= 0 {
		files, bytes = i, p.Offset
	} else if len(logs) > 0 && number(p.File) < number(logs[0].Name) && p.File != "" {
		return 0, 0
	} else {
		files, bytes = len(logs), p.Offset
	}
	for _, f := range logs[:files] {
		bytes += f.Bytes
	}
	return files, bytes
}

// number of a binlog file, which is what its name ends in.
func number(file string) uint64 {
	n, _ := strconv.ParseUint(file[strings.LastIndexByte(file, '.')+1:], 10, 64)
	return n
}
