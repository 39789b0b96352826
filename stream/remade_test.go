package stream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"notifymirror/mirror/record"
	"notifymirror/stream"
)

// A topic that is deleted and made again under a reader has other records at the offsets that come
// next. That is said, or gone on from the oldest, and never passed over.
func TestATopicMadeAgainUnderAReaderIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name  string
		group bool
		gone  stream.GonePolicy
	}{
		{"a group stops", true, stream.StopWhenGone},
		{"an assigned partition stops", false, stream.StopWhenGone},
		{"a group goes on", true, stream.OldestWhenGone},
		{"an assigned partition goes on", false, stream.OldestWhenGone},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := topic(t, 1)
			kafka := record.TopicName("", name)
			newMirror(t, name).commit(0, "old 0", "old 1", "old 2")
			s := newSeen()
			cfg := stream.Config{Topics: []string{name}, Gone: c.gone, LagInterval: 10 * time.Millisecond, Handler: s.handle}
			if c.group {
				cfg.Group = name
			}
			r := run(t, cfg)
			s.until(t, "the old ones", has("old 2"))
			admin := kadm.NewClient(client(t))
			if _, err := admin.DeleteTopic(deadline(t), kafka); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.CreateTopic(deadline(t), 1, 1, nil, kafka); err != nil {
				t.Fatal(err)
			}
			again := newMirror(t, name)
			for i := range 50 { // beyond the offset that is read next
				again.commit(0, fmt.Sprintf("new %d", i))
			}
			if c.gone == stream.OldestWhenGone {
				s.until(t, "the new ones from the first on", has("new 0"))
				r.stop(t)
				return
			}
			if err := r.wait(t); !errors.Is(err, stream.ErrOffsetOutOfRange) || !strings.Contains(err.Error(), "made again") {
				t.Errorf("error %v, handled %q", err, s.now())
			}
		})
	}
}

func has(body string) func([]string) bool {
	return func(bodies []string) bool { return slices.Contains(bodies, body) }
}
