package client

import "time"

// credit decides how many deliveries a broker may have under way on one stream.
// Deliveries wait here for a handler while the broker's ack wait runs; a large
// window in front of a slow handler makes late acks and repeats. So the window
// halves when a delivery had waited over a quarter of the ack wait, and doubles
// when none of a whole window had waited over a sixteenth.
type credit struct {
	min, max, now uint32
	seen          uint32
	longest       time.Duration
}

// observe takes how long one delivery waited and reports whether now changed.
func (c *credit) observe(waited, ackWait time.Duration) bool {
	c.seen++
	c.longest = max(c.longest, waited)
	before := c.now
	switch {
	case waited > ackWait/4 && c.seen >= c.min:
		c.now = max(c.min, c.now/2)
	case c.seen < c.now:
		return false
	case c.longest <= ackWait/16:
		c.now = min(c.max, c.now*2)
	}
	c.seen, c.longest = 0, 0
	return c.now != before
}
