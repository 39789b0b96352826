package stream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"

	"notifymirror/mirror/record"
	"notifymirror/stream"
)

func TestAHandlersErrorStopsTheConsumerAndCommitsWhatWentBefore(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "a", "b", "bad", "c")
	boom := errors.New("boom")
	s := newSeen()
	cfg := stream.Config{Topics: []string{name}, Group: name, Handler: func(ctx context.Context, r stream.Record) error {
		if string(r.Body) == "bad" {
			return boom
		}
		return s.handle(ctx, r)
	}}
	err := run(t, cfg).wait(t)
	he, ok := errors.AsType[*stream.HandlerError](err)
	if !ok || !errors.Is(err, boom) || he.Topic != name || he.Partition != 0 || he.Offset != 2 {
		t.Errorf("error %v", err)
	}
	if got := strings.Join(s.now(), " "); got != "a b" {
		t.Errorf("handled %q", got)
	}
	if got := committed(t, name, name, 0); got != 2 {
		t.Errorf("committed %d, want 2", got)
	}
	cfg.Handler = s.handle // mended
	r := run(t, cfg)
	if got := strings.Join(s.count(t, 4), " "); got != "a b bad c" {
		t.Errorf("handled %q", got)
	}
	r.stop(t)
}

func TestAGroupGoesOnWhereItStopped(t *testing.T) {
	name := topic(t, 2)
	m := newMirror(t, name)
	m.commit(0, "a0")
	m.commit(1, "a1")
	s := newSeen()
	cfg := stream.Config{Topics: []string{name}, Group: name, Handler: s.handle}
	r := run(t, cfg)
	s.count(t, 2)
	r.stop(t)
	m.commit(0, "b0")
	m.commit(1, "b1")
	r = run(t, cfg)
	got := s.count(t, 4)
	r.stop(t)
	slices.Sort(got)
	if strings.Join(got, " ") != "a0 a1 b0 b1" {
		t.Errorf("handled %q", got)
	}
}

func TestAStopWaitsForTheRecordInHandThenEndsItsContext(t *testing.T) {
	name := topic(t, 1)
	newMirror(t, name).commit(0, "a", "b")
	inHand, finish := make(chan struct{}), make(chan struct{})
	cfg := stream.Config{Topics: []string{name}, Group: name, Handler: func(ctx context.Context, r stream.Record) error {
		close(inHand)
		<-finish
		return ctx.Err()
	}}
	r := run(t, cfg)
	<-inHand
	r.cancel()
	select {
	case err := <-r.done:
		t.Fatalf("ended before the handler: %v", err)
	case finish <- struct{}{}:
	}
	if err := r.wait(t); err != nil {
		t.Error(err)
	}
	if got := committed(t, name, name, 0); got != 1 {
		t.Errorf("a handled record is not committed: %d", got)
	}

	inHand = make(chan struct{})
	cfg.StopTimeout = time.Millisecond
	cfg.Handler = func(ctx context.Context, r stream.Record) error {
		close(inHand)
		<-ctx.Done() // ends by StopTimeout only
		return ctx.Err()
	}
	r = run(t, cfg)
	<-inHand
	r.stop(t)
	if got := committed(t, name, name, 0); got != 1 {
		t.Errorf("a record whose context ended is committed: %d", got)
	}
}

func TestAGroupBeginsAtItsStart(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "m1", "m2", "m3")
	for i, c := range []struct {
		start stream.Position
		want  string
	}{
		{stream.Position{}, "m1 m2 m3 end"},
		{stream.Newest(), "end"},
		{stream.AtOffset(1), "m2 m3 end"},
		{stream.AtTime(at(3)), "m3 end"},
	} {
		s := newSeen()
		group := fmt.Sprintf("%s-%d", name, i)
		cfg := stream.Config{Topics: []string{name}, Group: group, Start: c.start, Handler: s.handle, CommitInterval: 10 * time.Millisecond}
		r := run(t, cfg)
		if c.start == stream.Newest() { // "now" must be fixed before the next record comes
			waitFor(t, "the first commit", func() bool { return committed(t, group, name, 0) >= 0 })
		}
		if i == 1 {
			m.commit(0, "end")
		}
		want := strings.Fields(c.want)
		if i == 0 {
			want = want[:3]
		}
		if got := strings.Join(s.count(t, len(want)), " "); got != strings.Join(want, " ") {
			t.Errorf("from %v: %q", c.start, got)
		}
		r.stop(t)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("no %s", what)
		}
	}
}

func TestAPartitionAddedLaterIsReadFromItsBeginning(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "old")
	s := newSeen()
	cfg := stream.Config{Topics: []string{name}, Group: name, Start: stream.Newest(), Handler: s.handle}
	r := run(t, cfg)
	waitFor(t, "the first commit", func() bool { return committed(t, name, name, 0) >= 0 })
	r.stop(t)
	addPartition(t, name)
	newMirror(t, name).commit(1, "new")
	r = run(t, cfg)
	if got := strings.Join(s.count(t, 1), " "); got != "new" {
		t.Errorf("handled %q", got)
	}
	r.stop(t)
}

// addPartition gives a topic of one partition a second one.
func addPartition(t *testing.T, name string) {
	t.Helper()
	if _, err := kadm.NewClient(client(t)).CreatePartitions(deadline(t), 1, record.TopicName("", name)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "second partition", func() bool {
		td, err := kadm.NewClient(client(t)).ListTopics(deadline(t), record.TopicName("", name))
		return err == nil && len(td[record.TopicName("", name)].Partitions) == 2
	})
}

func TestAPartitionAddedUnderAReadingGroupIsRead(t *testing.T) {
	name := topic(t, 1)
	m := newMirror(t, name)
	m.commit(0, "old")
	s := newSeen()
	often := func(c *sarama.Config) { c.Metadata.RefreshFrequency = 100 * time.Millisecond }
	r := run(t, stream.Config{Topics: []string{name}, Group: name, Start: stream.Oldest(), Handler: s.handle, Client: often})
	s.count(t, 1)
	addPartition(t, name)
	newMirror(t, name).commit(1, "new")
	if got := strings.Join(s.count(t, 2), " "); got != "old new" {
		t.Errorf("handled %q", got)
	}
	r.stop(t)
}

func TestACommittedOffsetThatIsGoneStopsTheGroup(t *testing.T) {
	name := topic(t, 1)
	newMirror(t, name).commit(0, "a", "b", "c")
	admin := kadm.NewClient(client(t))
	for _, c := range []struct {
		at   int64
		text string
	}{{1, "the oldest is 2"}, {100, "the log ends at 4"}} {
		var offsets, upTo kadm.Offsets
		offsets.Add(kadm.Offset{Topic: record.TopicName("", name), Partition: 0, At: c.at, LeaderEpoch: -1})
		group := fmt.Sprintf("%s-%d", name, c.at)
		if err := admin.CommitAllOffsets(deadline(t), group, offsets); err != nil {
			t.Fatal(err)
		}
		upTo.Add(kadm.Offset{Topic: record.TopicName("", name), Partition: 0, At: 2})
		if _, err := admin.DeleteRecords(deadline(t), upTo); err != nil {
			t.Fatal(err)
		}
		s := newSeen()
		err := run(t, stream.Config{Topics: []string{name}, Group: group, Handler: s.handle}).wait(t)
		if !errors.Is(err, stream.ErrOffsetOutOfRange) || !strings.Contains(err.Error(), c.text) || len(s.now()) > 0 {
			t.Errorf("committed %d: error %v, handled %q", c.at, err, s.now())
		}
	}
}

// hands watches for a record in two handlers at once.
type hands struct {
	*seen
	mu     sync.Mutex
	holder map[string]string // body -> member
	twice  []string
}

func (h *hands) member(name string) func(context.Context, stream.Record) error {
	return func(ctx context.Context, r stream.Record) error {
		place := fmt.Sprint(r.Partition) // a whole partition has one holder at a time
		h.mu.Lock()
		if other, ok := h.holder[place]; ok {
			h.twice = append(h.twice, fmt.Sprintf("%s at %s and %s", r.Body, other, name))
		}
		h.holder[place] = name
		h.mu.Unlock()
		spin(ctx)
		h.mu.Lock()
		delete(h.holder, place)
		h.mu.Unlock()
		return h.handle(ctx, r)
	}
}

// spin takes a millisecond of a handler's time.
func spin(ctx context.Context) {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func TestARebalanceHandsNoRecordToTwoMembersAtOnceAndLosesNone(t *testing.T) {
	const partitions, each = 4, 1500
	name := topic(t, partitions)
	m := newMirror(t, name)
	want := map[string]bool{}
	for p := range int32(partitions) {
		var bodies []string
		for i := range each {
			bodies = append(bodies, fmt.Sprintf("%d-%d", p, i))
			want[bodies[i]] = true
		}
		m.commit(p, bodies...)
	}
	h := &hands{seen: newSeen(), holder: map[string]string{}}
	cfg := stream.Config{Topics: []string{name}, Group: name, SessionTimeout: 6 * time.Second}
	member := func(n string) *running {
		cfg := cfg
		cfg.Handler = h.member(n)
		return run(t, cfg)
	}
	one := member("one")
	h.count(t, partitions*each/10)
	two := member("two")
	all := func(b []string) bool {
		distinct := map[string]bool{}
		for _, body := range b {
			distinct[body] = true
		}
		return len(distinct) == len(want)
	}
	h.count(t, partitions*each/2)
	one.stop(t)
	got := h.until(t, "all records", all)
	two.stop(t)
	if len(h.twice) > 0 {
		t.Errorf("in two hands: %q", h.twice)
	}
	if len(got) != len(want) {
		t.Errorf("%d records handled for %d, in planned rebalances only", len(got), len(want))
	}
}

const (
	childTopic = "NOTIFY_STREAM_CHILD_TOPIC"
)

// runChild is a member that the test kills: it prints each record that it handles.
func runChild() {
	name := os.Getenv(childTopic)
	c, err := stream.New(stream.Config{
		Brokers: []string{os.Getenv(kafkaEnv)}, Topics: []string{name}, Group: name,
		SessionTimeout: 6 * time.Second, CommitInterval: 50 * time.Millisecond,
		Handler: func(ctx context.Context, r stream.Record) error {
			fmt.Println(string(r.Body))
			spin(ctx)
			return nil
		},
	})
	if err == nil {
		err = c.Run(context.Background())
	}
	fmt.Println("error", err)
}

func TestAKilledMembersWorkGoesOnFromTheCommittedOffset(t *testing.T) {
	const n = 600
	name := topic(t, 1)
	var bodies []string
	for i := range n {
		bodies = append(bodies, fmt.Sprintf("m%04d", i))
	}
	newMirror(t, name).commit(0, bodies...)

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childTopic+"="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it was killed
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	var before []string
	for lines.Scan() && len(before) < n/2 {
		before = append(before, lines.Text())
	}
	waitFor(t, "a commit", func() bool { return committed(t, name, name, 0) > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // what it still said
		before = append(before, lines.Text())
	}
	from := committed(t, name, name, 0)
	if from > int64(len(before)) {
		t.Fatalf("committed %d with %d handled", from, len(before))
	}

	s := newSeen()
	r := run(t, stream.Config{Topics: []string{name}, Group: name, SessionTimeout: 6 * time.Second, Handler: s.handle})
	got := s.until(t, "last record", func(b []string) bool { return len(b) > 0 && b[len(b)-1] == bodies[n-1] })
	r.stop(t)
	if !slices.Equal(got, bodies[from:]) {
		t.Errorf("after the kill: %d records from %s, want %d from offset %d", len(got), got[0], n-int(from), from)
	}
}
