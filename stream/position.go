package stream

import (
	"fmt"
	"strconv"
	"strings"
)

// positionKey is where a processor's state says which offset comes next behind it:
//
//	"<next> <note>"     the note is that of the commit
//
// It is written by each transaction, beside the group's offset. The group's is what tools
// show; the state's is what counts, since the two can never be apart.
const positionKey = "\x00position"

func formatPosition(next int64, note string) []byte { return fmt.Appendf(nil, "%d %s", next, note) }

// parsePosition reads a position; not ok when there is none.
func parsePosition(text []byte) (next int64, of note, ok bool) {
	first, rest, _ := strings.Cut(string(text), " ")
	next, err := strconv.ParseInt(first, 10, 64)
	return next, parseNote(rest), err == nil
}

// atLeast takes over the position of a state when it is beyond what the group remembers, or
// the group remembers nothing: Kafka forgets a group's offsets in time, and a coordinator of
// an Apache Kafka 4.4 that came back from a kill has been seen to answer with old ones.
func (c *commits) atLeast(partition int32, next int64, of note) {
	if at, known := c.offsets[partition]; known && at >= next {
		return
	}
	c.offsets[partition], c.topics[partition] = next, of.topicID
}
