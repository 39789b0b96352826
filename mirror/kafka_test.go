package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"notifymirror/canal"
	"notifymirror/mirror/embedded"
	"notifymirror/mirror/record"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// testBrokers is the Kafka under test: NOTIFY_TEST_KAFKA, or an embedded one.
func testBrokers(t *testing.T) []string {
	t.Helper()
	if addr := os.Getenv("NOTIFY_TEST_KAFKA"); addr != "" {
		return strings.Split(addr, ",")
	}
	return []string{startEmbedded(t)}
}

func startEmbedded(t *testing.T) string {
	t.Helper()
	k, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k.Addrs()[0]
}

// A bench is a script, a Kafka, and as many Copiers as the test starts.
type bench struct {
	t       *testing.T
	brokers []string
	script  *script
	storeID string
	store   string // its name
	session time.Duration
	config  Config
	prefix  string
	// registry takes the metrics of the next Copier; nil: one of its own.
	registry *prometheus.Registry
}

func newBench(t *testing.T) *bench {
	t.Helper()
	id := uuid.NewString()
	b := &bench{t: t, brokers: testBrokers(t), script: newScript(), storeID: id, store: "a", session: Session, prefix: "t" + id[:8] + "."}
	b.config = Config{
		Cluster: "test-" + id[:8], TopicPrefix: b.prefix, Partitions: 3, ReplicationFactor: 1,
		Stores:             map[string]StoreConfig{"a": {DSN: "mirror:secret@tcp(127.0.0.1:1)/notify"}},
		Kafka:              KafkaConfig{Brokers: b.brokers, AllowEmbedded: true},
		TransactionTimeout: 5 * time.Second,
	}
	return b
}

// copier makes a Copier of the script's store; change may alter it before it runs.
func (b *bench) copier(change ...func(*Copier)) *Copier {
	b.t.Helper()
	reg := b.registry
	if reg == nil {
		reg = prometheus.NewPedanticRegistry()
	}
	c, err := New(b.config, b.store, Deps{Logger: testLogger(b.t), Registerer: reg})
	if err != nil {
		b.t.Fatal(err)
	}
	c.readStore = func(context.Context) (storeInfo, error) { return b.script.info(b.storeID), nil }
	c.openSource, c.openProbe, c.probeLimit = b.script.from, b.script.from, patience
	c.survey = func(context.Context) (canal.Survey, error) { return b.script.survey(), nil }
	c.connected = func() bool { return true }
	c.session = b.session
	for _, f := range change {
		f(c)
	}
	return c
}

// named is a Copier with a name of its own.
func (b *bench) named(id string, change ...func(*Copier)) *Copier {
	b.t.Helper()
	one := *b
	one.config.ID = id
	return one.copier(change...)
}

// quick makes the group notice within a second that a canald is gone.
func (b *bench) quick() {
	b.t.Helper()
	b.session = time.Second
	if os.Getenv("NOTIFY_TEST_KAFKA") != "" {
		return // that one allows it
	}
	least := "1000"
	res, err := b.admin().AlterBrokerConfigs(b.t.Context(), []kadm.AlterConfig{{Name: "group.min.session.timeout.ms", Value: &least}})
	if err != nil || res[0].Err != nil {
		b.t.Fatal(err, res)
	}
}

// evict takes canalds out of the group, as Kafka does when it has not heard of them for a session, and
// returns how many. Without a client's name it takes all.
func (b *bench) evict(client string) (n int) {
	b.t.Helper()
	group := b.config.Cluster + "/" + b.storeID
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	groups, err := kadm.NewClient(cl).DescribeGroups(b.t.Context(), group)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range groups[group].Members {
		if client != "" && m.ClientID != client {
			continue
		}
		n++
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = group
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Members = append(req.Members, member)
		if _, err := req.RequestWith(b.t.Context(), cl); err != nil {
			b.t.Fatal(err)
		}
	}
	return n
}

// awaitState waits until a Copier is in a state, with that canald as the active one.
func (b *bench) awaitState(c *Copier, state State, active string) {
	b.t.Helper()
	eventually(b.t, func() error {
		if s := c.Status(); s.State != state || s.Active != active {
			return fmt.Errorf("status %+v, want %s with %s active", s, state, active)
		}
		return nil
	})
}

// run runs a Copier until the returned function stops it; that returns what Run returned.
func (b *bench) run(c *Copier) (stop func() error) {
	ctx, cancel := context.WithCancel(b.t.Context())
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			select {
			case err = <-result:
			case <-time.After(patience):
				b.t.Error("Run did not end")
			}
		})
		return err
	}
	b.t.Cleanup(func() { _ = stop() })
	return stop
}

// halts runs a Copier until it halts.
func (b *bench) halts(c *Copier) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	err := c.Run(ctx)
	if err == nil {
		b.t.Fatalf("Run ended without an error; status %+v", c.Status())
	}
	return err
}

// await waits until the Copier's last checkpoint is behind the whole script.
func (b *bench) await(c *Copier) {
	b.t.Helper()
	eventually(b.t, func() error { return b.behind(c) })
}

// behind is nil when the last checkpoint is behind the whole script.
func (b *bench) behind(c *Copier) error {
	b.script.mu.Lock()
	want := fmt.Sprintf("0-1-%d", len(b.script.txns))
	b.script.mu.Unlock()
	if s := c.Status(); s.Position != want {
		return fmt.Errorf("position %s instead of %s: %+v", s.Position, want, s)
	}
	return nil
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-tick.C
	}
}

// seen is a record as the oracle read it.
type seen struct {
	record.Message
	topic     string
	partition int32
	offset    int64
}

// oracle reads every committed record of the store in the bench's topics, with a client of
// its own.
func (b *bench) oracle() []seen {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	admin, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer admin.Close()
	topics, err := kadm.NewClient(admin).ListTopics(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, b.prefix) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	ends := b.settledEnds(kadm.NewClient(admin), names)
	left := map[string]map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			b.t.Fatal(o.Err)
		}
		if o.Offset > 0 {
			if left[o.Topic] == nil {
				left[o.Topic] = map[int32]int64{}
			}
			left[o.Topic][o.Partition] = o.Offset
		}
	})
	return b.consume(ctx, left)
}

// settledEnds waits until no transaction is open, and returns the ends. A commit is
// answered before its markers are written.
func (b *bench) settledEnds(admin *kadm.Client, names []string) (ends kadm.ListedOffsets) {
	b.t.Helper()
	eventually(b.t, func() (err error) {
		high, err := admin.ListEndOffsets(b.t.Context(), names...)
		if err != nil {
			return err
		}
		if ends, err = admin.ListCommittedOffsets(b.t.Context(), names...); err != nil {
			return err
		}
		high.Each(func(o kadm.ListedOffset) {
			if stable, ok := ends.Lookup(o.Topic, o.Partition); !ok || stable.Offset != o.Offset {
				err = fmt.Errorf("%s/%d: a transaction is open at offset %d", o.Topic, o.Partition, stable.Offset)
			}
		})
		return err
	})
	return ends
}

// consume reads each partition up to its end.
func (b *bench) consume(ctx context.Context, left map[string]map[int32]int64) (out []seen) {
	b.t.Helper()
	offsets := map[string]map[int32]kgo.Offset{}
	for topic, ps := range left {
		offsets[topic] = map[int32]kgo.Offset{}
		for p := range ps {
			offsets[topic][p] = kgo.NewOffset().AtStart()
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumePartitions(offsets),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			b.t.Fatalf("oracle: %v, with %v left", err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, ok := left[r.Topic][r.Partition]; ok && r.Offset >= end-1 {
				delete(left[r.Topic], r.Partition)
				if len(left[r.Topic]) == 0 {
					delete(left, r.Topic)
				}
			}
			if r.Attrs.IsControl() {
				return
			}
			rec := record.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
			for _, h := range r.Headers {
				rec.Headers = append(rec.Headers, record.KafkaHeader{Key: []byte(h.Key), Value: h.Value})
			}
			m, err := record.Decode(rec)
			if err != nil {
				b.t.Fatal(err)
			}
			if m.Source.Store == b.storeID {
				out = append(out, seen{m, r.Topic, r.Partition, r.Offset})
			}
		})
	}
	return out
}

// check proves that the mirror holds each mirrored message of the script once, in order,
// with the seq that counting gives it.
func (b *bench) check() {
	b.t.Helper()
	type want struct {
		seq  uint64
		body string
	}
	wants := map[uuid.UUID]want{}
	var seq uint64
	b.script.mu.Lock()
	for _, t := range b.script.txns {
		for _, r := range t.rows {
			seq++
			if r.Values[6].Int != 0 {
				wants[uuid.UUID(r.Values[1].Bytes)] = want{seq, string(r.Values[5].Bytes)}
			}
		}
	}
	b.script.mu.Unlock()
	got := b.oracle()
	sort.Slice(got, func(i, j int) bool {
		a, b := got[i], got[j]
		if a.topic != b.topic {
			return a.topic < b.topic
		}
		if a.partition != b.partition {
			return a.partition < b.partition
		}
		return a.offset < b.offset
	})
	times := map[uuid.UUID]int{}
	for i, m := range got {
		w, ok := wants[m.ID]
		times[m.ID]++
		switch {
		case !ok:
			b.t.Fatalf("message %s was never committed", m.ID)
		case times[m.ID] > 1:
			b.t.Fatalf("message %s, seq %d, is %d times in the mirror", m.ID, m.Seq, times[m.ID])
		case m.Seq != w.seq || string(m.Body) != w.body || m.Source.Generation != 1:
			b.t.Fatalf("message %s is %+v, want %+v", m.ID, m, w)
		case i > 0 && got[i-1].topic == m.topic && got[i-1].partition == m.partition && got[i-1].Seq >= m.Seq:
			b.t.Fatalf("seq %d comes behind %d in %s/%d", m.Seq, got[i-1].Seq, m.topic, m.partition)
		}
	}
	if len(got) == len(wants) {
		return
	}
	var missing []uint64
	for id, w := range wants {
		if times[id] == 0 {
			missing = append(missing, w.seq)
		}
	}
	slices.Sort(missing)
	b.t.Fatalf("%d messages in the mirror, %d were committed; missing are seq %v", len(got), len(wants), missing)
}

// faultyDialer opens connections that tests can watch and cut. All of a Copier's traffic
// to Kafka goes through it.
type faultyDialer struct {
	mu     sync.Mutex
	conns  map[*faultyConn]bool
	dead   bool
	frozen chan struct{} // closed by thaw; nil: not frozen
	sent   map[int16]int // requests by API key
	// before and after are asked around each request by its API key; true cuts everything.
	before, after func(key int16) bool
}

// Kafka's API keys.
const (
	apiProduce         = 0
	apiJoinGroup       = 11
	apiHeartbeat       = 12
	apiCreateTopics    = 19
	apiInitProducerID  = 22
	apiAddPartitions   = 24
	apiEndTxn          = 26
	apiDescribeConfigs = 32

	apiCreatePartitions = 37
)

func (d *faultyDialer) Dial(network, address string) (net.Conn, error) {
	d.pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, fmt.Errorf("dial %s: cut by the test", address)
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	c := &faultyConn{Conn: conn, dialer: d}
	if d.conns == nil {
		d.conns = map[*faultyConn]bool{}
	}
	d.conns[c] = true
	return c, nil
}

// cut closes every connection; while dead, none can be opened.
func (d *faultyDialer) cut(dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = dead
	for c := range d.conns {
		_ = c.Conn.Close()
	}
	d.conns = nil
}

// freeze stops all traffic, as if the process had been stopped; thaw lets it go on.
func (d *faultyDialer) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frozen == nil {
		d.frozen = make(chan struct{})
	}
}

func (d *faultyDialer) thaw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frozen != nil {
		close(d.frozen)
		d.frozen = nil
	}
}

// pass waits while all is frozen.
func (d *faultyDialer) pass() {
	d.mu.Lock()
	frozen := d.frozen
	d.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (d *faultyDialer) isFrozen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.frozen != nil
}

func (d *faultyDialer) count(key int16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent == nil {
		d.sent = map[int16]int{}
	}
	d.sent[key]++
}

// takeovers is how many times the transactional id was initialised through the dialer.
func (d *faultyDialer) takeovers() int { return d.requests(apiInitProducerID) }

func (d *faultyDialer) requests(key int16) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent[key]
}

func (d *faultyDialer) revive() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = false
}

type faultyConn struct {
	net.Conn
	dialer *faultyDialer
}

// Write sees whole requests: length (4 bytes), API key (2 bytes), the rest.
func (c *faultyConn) Write(b []byte) (int, error) {
	key := int16(-1)
	if len(b) >= 6 {
		key = int16(b[4])<<8 | int16(b[5])
	}
	d := c.dialer
	if d.before != nil && d.before(key) {
		return 0, net.ErrClosed
	}
	d.pass()
	d.count(key)
	n, err := c.Conn.Write(b)
	if err == nil && d.after != nil && d.after(key) {
		return n, nil
	}
	return n, err
}

// Read hands on what came, but not while all is frozen.
func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.dialer.pass()
	return n, err
}

// testLogger writes to the test's log.
func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
