package canal

import (
	"errors"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
)

// recordedTagged is a GTID event of MySQL 9 for 896e7882-18fe-11ef-ab88-22222d34d411:foobaz:1.
var recordedTagged = []byte{
	0x2, 0x76, 0x0, 0x0, 0x2, 0x2, 0x25, 0x2, 0xdc, 0xf0, 0x9, 0x2, 0x30, 0xf9, 0x3, 0x22, 0xbd, 0x3,
	0xad, 0x2, 0x21, 0x2, 0x44, 0x44, 0x5a, 0x68, 0x51, 0x3, 0x22, 0x4, 0x4, 0x6, 0xc, 0x66, 0x6f, 0x6f, 0x62,
	0x61, 0x7a, 0x8, 0x0, 0xa, 0x4, 0xc, 0x7f, 0x15, 0x83, 0x22, 0x2d, 0x5c, 0x2e, 0x6, 0x10, 0x49, 0x3, 0x12,
	0xc3, 0x2, 0xb,
}

func TestGTIDEventsAreReadWithTagAndCommitTime(t *testing.T) {
	time1 := time.UnixMicro(scriptTime*1e6 + 7).UTC()
	cases := []struct {
		flavor Flavor
		event  event
		gtid   string
		when   time.Time
	}{
		{MySQL, gtidEvent(MySQL, 7), scriptSID.String() + ":7", time1},
		{MariaDB, gtidEvent(MariaDB, 7), "0-1-7", time.Time{}},
		{MySQL, taggedEvent("a_tag", 7), scriptSID.String() + ":a_tag:7", time1},
		{MySQL, event{typ: replication.GTID_TAGGED_LOG_EVENT, body: recordedTagged}, "896e7882-18fe-11ef-ab88-22222d34d411:foobaz:1", libraryTime(t)},
	}
	for _, c := range cases {
		g, err := readGTID(c.event)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.gtid.text(c.flavor); got != c.gtid {
			t.Errorf("GTID %s, want %s", got, c.gtid)
		}
		if !g.when.Equal(c.when) {
			t.Errorf("%s: time %s, want %s", c.gtid, g.when, c.when)
		}
		for n := range c.event.body[:min(len(c.event.body), 13)] {
			if _, err := readGTID(event{typ: c.event.typ, body: c.event.body[:n]}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut to %d bytes: %v", c.gtid, n, err)
			}
		}
	}
}

// libraryTime is the recorded event's commit time as go-mysql reads it.
func libraryTime(t *testing.T) time.Time {
	var e replication.GtidTaggedLogEvent
	if err := e.Decode(recordedTagged); err != nil {
		t.Fatal(err)
	}
	return e.ImmediateCommitTime()
}
