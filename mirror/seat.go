package mirror

import (
	"fmt"
	"time"
)

// A seat is what a canald knows of its place among those of its store, which are the
// members of a Kafka consumer group. One of them is active.
//
//	                 the group shares out anew
//	                     +--------------+
//	                     v              |
//	outside ---join---> standby <---> active
//	   ^                   |            |
//	   +-------------------+------------+
//	     the group has not heard of the member for a session, and forgot it
//
// The group decides who is active, by what its members say of themselves (see elect). That
// is the election, and no more: what keeps two from writing is Kafka's fencing of the
// transactional id.
type seat struct {
	// generation of the group in which the seat was given; 0: outside.
	generation int32
	active     bool
	// holder is the name of the active canald.
	holder string
	// confirmed is when the last exchange with the group that succeeded began.
	confirmed time.Time
}

// outside is the seat of whom the group does not know.
var outside = seat{}

// claim is what the member says of itself when it joins: the generation in which it was
// active, 0 when it was not.
func (s seat) claim() int32 {
	if s.active {
		return s.generation
	}
	return 0
}

// heard is the seat when the group has answered a question of that time.
func (s seat) heard(asked time.Time) seat {
	s.confirmed = asked
	return s
}

// after is the seat at a time: who is active and has not been answered for limit must
// believe that another one is, and join anew. The group may not know that, when it was away
// itself, so its answer to a mere heartbeat would not make anybody active again.
func (s seat) after(now time.Time, limit time.Duration) seat {
	if s.active && now.Sub(s.confirmed) > limit {
		return outside
	}
	return s
}

// String is for logs.
func (s seat) String() string {
	return fmt.Sprintf("generation %d, active %t, holder %q", s.generation, s.active, s.holder)
}

// A candidate is a member as it joins: its claim as above.
type candidate struct {
	member string
	claim  int32
}

// elect chooses who is active: the one that was active last, so that those who come and go
// beside it do not disturb it; where nobody was, the first by name. The order of all, which
// must not be empty, makes no difference.
func elect(all []candidate) candidate {
	best := all[0]
	for _, c := range all[1:] {
		if c.claim > best.claim || c.claim == best.claim && c.member < best.member {
			best = c
		}
	}
	return best
}
