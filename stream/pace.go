package stream

import (
	"context"
	"math"
	"sync"
	"time"
)

// pace hands records out at a factor of their original speed, all partitions together:
//
//	due = when reading began + (a record's time - the first one's) / speed
//
// A record with an earlier time than one before it is due at once.
type pace struct {
	speed float64
	first time.Time // the earliest record of all partitions
	once  sync.Once
	begun time.Time
}

// due is how long to hold a record back.
func (p *pace) due(at, now time.Time) time.Duration {
	const most = float64(math.MaxInt64 / 2) // 146 years
	return time.Duration(min(float64(at.Sub(p.first))/p.speed, most)) - now.Sub(p.begun)
}

// wait holds a record back, and tells whether ctx let it. A nil pace holds nothing back.
func (p *pace) wait(ctx context.Context, at time.Time) bool {
	if p == nil {
		return true
	}
	p.once.Do(func() { p.begun = time.Now() })
	d := p.due(at, time.Now())
	return d <= 0 || pause(ctx, d)
}

// newPace looks for the earliest record; it is nil when no speed is asked for.
func (c *Consumer) newPace(log *kafkaLog, ps []assignment) (*pace, error) {
	if c.cfg.Speed == 0 {
		return nil, nil
	}
	first := time.Time{}
	for _, p := range ps {
		b, err := log.bounds(p.kafka, p.number)
		if err != nil {
			return nil, err
		}
		at, err := log.firstTime(p.kafka, p.number, p.fetch, b.newest, p.from)
		if err != nil {
			return nil, err
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() { // there is nothing yet: what comes is as new as now
		first = time.Now()
	}
	return &pace{speed: c.cfg.Speed, first: first}, nil
}

// firstTime is the time of the first record in [from, end) that the reader gets to see
// and that is not before notBefore; zero when there is none.
func (l *kafkaLog) firstTime(topic string, partition int32, from, end int64, notBefore time.Time) (time.Time, error) {
	for at := from; at < end; {
		batch, aborted, err := l.batchAt(topic, partition, at)
		if err != nil || batch == nil {
			return time.Time{}, err
		}
		if !batch.Control && !aborted {
			for _, r := range batch.Records {
				when := batch.FirstTimestamp.Add(r.TimestampDelta)
				if batch.FirstOffset+r.OffsetDelta >= from && !when.Before(notBefore) {
					return when, nil
				}
			}
		}
		at = max(at, batch.FirstOffset+int64(batch.LastOffsetDelta)) + 1
	}
	return time.Time{}, nil
}

// Progress tells of a reading with an End how many offsets it is through, and of how many;
// markers count too. With a time as its End it may end before all. Both are 0 otherwise.
func (c *Consumer) Progress() (done, all int64) {
	reach := c.reach.Load()
	if reach == nil {
		return 0, 0
	}
	for _, p := range *reach {
		all += max(0, p.last+1-p.start)
		done += max(0, min(p.next.Load(), p.last+1)-p.start)
	}
	return done, all
}
