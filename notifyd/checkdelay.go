package notifyd

import "time"

// A checkDelay says when a half that nobody decides is asked about next; microseconds all.
//
//	prepared -- first --> check 1 -- 2 first --> check 2 -- 4 first --> ... at most max
type checkDelay struct{ first, max int64 }

// checkDelay is that of a topic: its own setting, or else the broker's.
func (c *core) checkDelay(topic string) checkDelay {
	d := checkDelay{first: time.Duration(c.cfg.CheckAfter).Microseconds(), max: time.Duration(c.cfg.CheckMax).Microseconds()}
	if own := c.declared.load().Topics[topic].Settings.CheckAfter; own > 0 {
		d.first = own
		d.max = max(d.max, own)
	}
	return d
}

// asked is the delay behind the n-th check, from 1, that was asked.
func (d checkDelay) asked(n int) int64 {
	delay := d.first
	for ; n > 0 && delay < d.max; n-- {
		delay *= 2
	}
	return min(delay, d.max)
}

// notAsked is the delay behind a check that could not be asked of a half of some age. It doubles the age, so
// a half is tried as often as the logarithm of its age says until the delay is the longest.
func (d checkDelay) notAsked(age int64) int64 { return min(max(age, d.first), d.max) }
