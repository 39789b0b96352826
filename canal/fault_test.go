package canal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
	"go.uber.org/goleak"
)

// seeded is a random source whose seed is printed.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// noLeaks fails the test if goroutines are left after all its cleanups.
func noLeaks(t testing.TB) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func (t *tail) line() string {
	t.t.Helper()
	txn, rows := t.rows()
	s := txn.GTID[strings.LastIndexAny(txn.GTID, ":-")+1:]
	for _, r := range rows {
		n, _, _ := strings.Cut(strings.TrimPrefix(r, "message_00 pos="), " ")
		s += " " + n
	}
	return s
}

func TestACutAnywhereOnTheWireNeitherDoublesNorTearsATransaction(t *testing.T) {
	noLeaks(t)
	flavors(t, func(t *testing.T, f Flavor) {
		random := seeded(t)
		var groups [][]event
		var want []string
		for i := range 30 {
			groups = append(groups, transaction(f, uint64(i+1), 3*i, 3*i+1, 3*i+2))
			want = append(want, fmt.Sprintf("%d %d %d %d", i+1, 3*i, 3*i+1, 3*i+2))
		}
		s := newPrimary(t, f, func(d *dump) {
			if !d.head() {
				return
			}
			left := random.IntN(25)
			for _, g := range groups {
				one := newGTIDSet(f)
				if opened, _ := readGTID(g[0]); !one.add(opened.gtid) || d.from.contains(one) {
					continue
				}
				for _, e := range g {
					if left--; left < 0 {
						d.part(e, random.IntN(40))
						return
					}
					d.send(e)
				}
			}
			d.beat()
		})
		s.executed = gtidText(f, 30)
		if f == MySQL {
			s.executed = scriptSID.String() + ":1-30"
		}
		tl := s.tail(Position{})
		for i := range want {
			if got := tl.line(); got != want[i] {
				t.Fatalf("transaction %q, want %q", got, want[i])
			}
		}
		if n := len(s.asked()); n < 3 || tl.Stats().Reconnects[EOF] < 3 || tl.Stats().Voided == 0 {
			t.Errorf("%d dumps, %+v: the wire was hardly cut", n, tl.Stats())
		}
	})
}

func TestATransactionCutAndSentAgainInOneConnectionIsNotDoubled(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		whole := transaction(f, 1, 10, 11)
		s := newPrimary(t, f, func(d *dump) {
			d.head()
			d.send(whole[:len(whole)-1]...)
			d.send(whole...)
			d.send(transaction(f, 2, 12)...)
			d.beat()
		})
		s.executed = gtidText(f, 2)
		if f == MySQL {
			s.executed = scriptSID.String() + ":1-2"
		}
		tl := s.tail(Position{})
		if a, b := tl.line(), tl.line(); a != "1 10 11" || b != "2 12" {
			t.Errorf("transactions %q, %q", a, b)
		}
		if tl.Stats().Voided != 1 {
			t.Errorf("stats %+v", tl.Stats())
		}
	})
}

func TestTaggedAndForeignTransactionsAreInThePositionThatIsAskedFor(t *testing.T) {
	groups := [][]event{transaction(MySQL, 1), transaction(MySQL, 2, 20), transaction(MySQL, 1, 30)}
	groups[2][0] = taggedEvent("mysqlsh", 1)
	s := newPrimary(t, MySQL, func(d *dump) {
		d.log(groups[:min(len(groups), d.no+1)])
		if d.no >= len(groups) {
			d.beat()
		}
	})
	s.executed = scriptSID.String() + ":1-2:mysqlsh:1"
	tl := s.tail(Position{Flavor: MySQL})
	if a, b := tl.line(), tl.line(); a != "2 20" || b != "1 30" {
		t.Errorf("transactions %q, %q", a, b)
	}
	for txn := tl.step(); txn.Kind != Heartbeat; txn = tl.step() {
	}
	want := []string{"", scriptSID.String() + ":1", scriptSID.String() + ":1-2", s.executed}
	if got := s.asked(); !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

func TestNothingIsHandedOutOfATransactionWithoutItsEnd(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		whole := transaction(f, 1, 10)
		s := newPrimary(t, f, func(d *dump) {
			d.head()
			d.send(whole[:len(whole)-1]...)
			d.beat()
		})
		tl, err := NewTailer(s.config())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop := make(chan struct{})
		go func() { // lets the sequence run until heartbeats came behind the cut
			defer close(stop)
			await(t, "heartbeats", func() bool { return tl.Stats().Heartbeats > 5 })
			cancel()
		}()
		for txn, err := range tl.Txns(ctx, Position{}) {
			if err == nil {
				t.Errorf("came out: %+v", txn)
			}
		}
		<-stop
	})
}

func TestHeartbeatsOfASearchDoNotMeanThatAllIsSent(t *testing.T) {
	s := newPrimary(t, MySQL, func(d *dump) {
		d.head()
		beat := event{typ: 27, body: []byte("binlog.000001")}
		d.send(beat, beat)
		d.send(transaction(MySQL, 1, 10)...)
		d.beat()
	})
	s.executed = gtidText(MySQL, 1)
	tl := s.tail(Position{})
	if txn := tl.step(); txn.Kind != Rows {
		t.Errorf("first: %+v", txn)
	}
	if txn := tl.step(); txn.Kind != Heartbeat {
		t.Errorf("then: %+v", txn)
	}
}

func TestSilenceIsATimeoutAndReadingGoesOn(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		gone := make(chan struct{})
		s := newPrimary(t, f, func(d *dump) {
			d.head()
			if d.no == 0 {
				d.send(event{typ: 27})
				<-gone
				return
			}
			d.send(transaction(f, 1, 10)...)
			d.beat()
		})
		t.Cleanup(func() { close(gone) })
		store := &store{config: s.config()}
		store.config.ReadTimeout, store.config.SeekTimeout = 100*time.Millisecond, time.Hour
		tl := store.tail(t, Position{})
		if got := tl.line(); got != "1 10" {
			t.Errorf("transaction %q", got)
		}
		if st := tl.Stats(); st.Reconnects[Timeout] != 1 || !st.Connected {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestHeartbeatsKeepAnIdleConnectionForManyTimesTheReadTimeout(t *testing.T) {
	s := newPrimary(t, MySQL, func(d *dump) {
		d.head()
		d.beat()
	})
	store := &store{config: s.config()}
	store.config.ReadTimeout = time.Second
	tl := store.tail(t, Position{})
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		if txn := tl.step(); txn.Kind != Heartbeat {
			t.Fatalf("came out: %+v", txn)
		}
	}
	if n := len(s.asked()); n != 1 {
		t.Errorf("%d dumps, stats %+v", n, tl.Stats())
	}
}

// Three heartbeats that do not come are enough, unless the server has not found the position.
func TestAStalledConnectionIsNoticedWithinThreeHeartbeats(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		const period = 100 * time.Millisecond
		gone := make(chan struct{})
		s := newPrimary(t, f, func(d *dump) {
			d.head()
			if d.no == 0 {
				d.send(event{typ: replication.PREVIOUS_GTIDS_EVENT})
				<-time.After(5 * period) // it searches
				d.send(transaction(f, 1, 10)...)
				<-gone
				return
			}
			d.send(transaction(f, 2, 20)...)
			d.beat()
		})
		if s.executed = gtidText(f, 2); f == MySQL {
			s.executed = scriptSID.String() + ":1-2"
		}
		t.Cleanup(func() { close(gone) })
		store := &store{config: s.config()}
		store.config.HeartbeatPeriod, store.config.ReadTimeout, store.config.SeekTimeout = period, 0, time.Hour
		tl := store.tail(t, Position{})
		if got, st := tl.line(), tl.Stats(); got != "1 10" || len(st.Reconnects) != 0 {
			t.Errorf("transaction %q, stats %+v", got, st)
		}
		began := time.Now()
		if got := tl.line(); got != "2 20" {
			t.Errorf("transaction %q", got)
		}
		if d, st := time.Since(began), tl.Stats(); d > 20*time.Second || st.Reconnects[Timeout] == 0 {
			t.Errorf("noticed after %s, stats %+v", d, st)
		}
	})
}

func TestTheServersClockIsMeasured(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		s := newPrimary(t, MySQL, nil)
		s.clock = ahead
		began := time.Now()
		look, err := Look(t.Context(), s.config())
		if off := (look.Clock - ahead).Abs(); err != nil || off > time.Since(began) || look.Logs != nil {
			t.Errorf("ahead by %s: %+v, %v", ahead, look, err)
		}
	}
}

func TestErrorsOfTheServerAreToldApart(t *testing.T) {
	cases := []struct {
		code uint16
		text string
		want error
	}{
		{1236, "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and required binlog files have been purged.", ErrPurged},
		{1236, "Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog", ErrAheadOfServer},
		{1236, "Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog. Since the master's binlog contains GTIDs with higher sequence numbers, it probably means that the slave has diverged due to executing extra erroneous transactions", ErrAheadOfServer},
		{1236, "Cannot replicate because the source purged required binary logs.", ErrPurged},
		{1236, "Slave has more GTIDs than the master has, using the master's SERVER_UUID.", ErrAheadOfServer},
		{1236, "Could not find first log file name in binary log index file", ErrFileGone},
		{1236, "Could not open log file", ErrFileGone},
		{29, "File './binlog.000002' not found (Errcode: 2 \"No such file or directory\")", ErrFileGone},
		{1236, "Client requested source to start replication from position > file size", ErrPastEnd},
		{1236, "Client requested master to start replication from impossible position", ErrPastEnd},
		{1236, "Got fatal error from master: could not find next log", ErrIncident},
		{1789, "The master has purged binary logs containing GTIDs that the slave requires.", ErrPurged},
		{1227, "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s) for this operation", ErrGrant},
		{1045, "Access denied for user", ErrGrant},
		{1236, "A slave with the same server_uuid/server_id as this slave has connected to the master", ErrServerIDTaken},
		{4052, "a slave with the same server id", ErrServerIDTaken},
	}
	for _, c := range cases {
		s := newPrimary(t, MariaDB, func(d *dump) { d.fail(c.code, c.text) })
		store := &store{config: s.config()}
		store.config.ServerID = 77
		err := store.tail(t, Position{}).failure()
		var stop *StopError
		if !errors.Is(err, c.want) || !errors.As(err, &stop) || !strings.Contains(stop.Where, store.config.Addr) || stop.Mend == "" {
			t.Errorf("%d %s: %v", c.code, c.text, err)
		}
		if len(s.asked()) != 1 {
			t.Errorf("%d %s: tried %d times", c.code, c.text, len(s.asked()))
		}
	}
}

func TestATakenServerIDIsReplacedWhenItWasOurChoice(t *testing.T) {
	s := newPrimary(t, MariaDB, func(d *dump) {
		switch d.no {
		case 0:
			d.fail(4052, "a slave with the same server id")
		case 1:
			d.fail(1236, "A slave with the same server_uuid/server_id as this slave has connected to the master")
		default:
			d.log([][]event{transaction(MariaDB, 1, 10)})
			d.beat()
		}
	})
	tl := s.tail(Position{})
	if got := tl.line(); got != "1 10" || tl.Stats().Reconnects[Killed] != 2 {
		t.Errorf("transaction %q, stats %+v", got, tl.Stats())
	}
}

func TestAnotherServerAtTheAddressStopsTheTailer(t *testing.T) {
	s := newPrimary(t, MySQL, func(d *dump) {
		d.log([][]event{transaction(MySQL, 1, 10)})
		d.set(func() { d.vars["server_uuid"] = "another" })
	})
	s.executed = gtidText(MySQL, 1)
	tl := s.tail(Position{})
	tl.line()
	if err := tl.failure(); !errors.Is(err, ErrServerChanged) || !strings.Contains(err.Error(), "another") {
		t.Errorf("error %v", err)
	}
}

func TestALostHistoryStopsTheTailerWhenItConnectsAgain(t *testing.T) {
	for _, c := range []struct {
		change func(s *primary)
		want   error
	}{
		{func(s *primary) { s.executed = "" }, ErrAheadOfServer},
		{func(s *primary) { s.executed, s.purged = scriptSID.String()+":1-9", scriptSID.String()+":1-5" }, ErrPurged},
		{func(s *primary) { s.vars["binlog_format"] = "STATEMENT" }, ErrSettings},
	} {
		s := newPrimary(t, MySQL, func(d *dump) {
			d.log([][]event{transaction(MySQL, 1, 10)})
			d.set(func() { c.change(d.primary) })
		})
		s.executed = gtidText(MySQL, 1)
		tl := s.tail(Position{})
		tl.line()
		if err := tl.failure(); !errors.Is(err, c.want) || len(s.asked()) != 1 {
			t.Errorf("error %v after %d dumps, want %v", err, len(s.asked()), c.want)
		}
	}
}

func TestADamagedEventIsReadAgainAFewTimes(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		damaged := transaction(f, 1, 10)
		damaged = append(damaged[:len(damaged)-2:len(damaged)-2], insertEvent(9, 10), xidEvent())
		var heals atomic.Bool
		s := newPrimary(t, f, func(d *dump) {
			if heals.Load() && d.no == 2 {
				d.log([][]event{transaction(f, 1, 10)})
				d.beat()
			}
			d.log([][]event{damaged})
			d.beat()
		})
		s.executed = gtidText(f, 1)
		if err := s.tail(Position{}).failure(); !errors.Is(err, ErrCorrupt) || len(s.asked()) != 1+maxDamaged {
			t.Errorf("error %v after %d dumps", err, len(s.asked()))
		}
		s.set(func() { s.dumps = nil })
		heals.Store(true)
		if got := s.tail(Position{}).line(); got != "1 10" {
			t.Errorf("transaction %q", got)
		}
	})
}

func TestAFileThatStaysCutOffIsAnIncident(t *testing.T) {
	s := newPrimary(t, MariaDB, func(d *dump) {
		d.fail(1236, "binlog truncated in the middle of event; consider out of disk space on master")
	})
	if err := s.tail(Position{}).failure(); !errors.Is(err, ErrIncident) || len(s.asked()) != 1+maxDamaged {
		t.Errorf("error %v after %d dumps", err, len(s.asked()))
	}
}

func TestATransactionSentTwiceStopsTheTailer(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		s := newPrimary(t, f, func(d *dump) {
			d.head()
			d.send(transaction(f, 1, 10)...)
			d.send(transaction(f, 1, 10)...)
			d.beat()
		})
		tl := s.tail(Position{})
		tl.line()
		if err := tl.failure(); !errors.Is(err, ErrUnknownEvent) || !strings.Contains(err.Error(), gtidText(f, 1)) {
			t.Errorf("error %v", err)
		}
	})
}

func TestWholeTransactionsBeforeAFaultAreHandedOutFirst(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		s := newPrimary(t, f, func(d *dump) {
			d.head()
			for i := range 20 {
				d.send(transaction(f, uint64(i+1), i)...)
			}
			d.send(join(begin(f, 21), one(event{typ: 26}))...)
			d.beat()
		})
		tl := s.tail(Position{})
		for i := range 20 {
			if got, want := tl.line(), fmt.Sprintf("%d %d", i+1, i); got != want {
				t.Fatalf("transaction %q, want %q", got, want)
			}
		}
		if err := tl.failure(); !errors.Is(err, ErrIncident) || !strings.Contains(err.Error(), gtidText(f, 21)) {
			t.Errorf("error %v", err)
		}
	})
}

// A server that takes the connection and says nothing holds up neither the end of the
// sequence nor that of the process.
func TestASilentServerDoesNotHoldUpTheEnd(t *testing.T) {
	noLeaks(t)
	for _, silent := range []string{"at once", "at the second connection", "at the dump", "after the head"} {
		t.Run(silent, func(t *testing.T) {
			gone := make(chan struct{})
			reached := make(chan struct{}, 9)
			s := newPrimary(t, MySQL, func(d *dump) {
				if silent == "after the head" {
					d.head()
				}
				reached <- struct{}{}
				<-gone
			})
			config := s.config()
			if silent == "at the second connection" {
				var n atomic.Int32
				config.Addr = proxy(t, config.Addr, func(c net.Conn) net.Conn {
					if n.Add(1) == 1 {
						return c
					}
					reached <- struct{}{}
					return swallower{c}
				})
			}
			if silent == "at once" {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				config.Addr = l.Addr().String()
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						defer c.Close()
						reached <- struct{}{}
					}
				}()
			}
			tl, err := NewTailer(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var asked time.Time
			go func() { <-reached; asked = time.Now(); cancel() }()
			var last error
			for _, err := range tl.Txns(ctx, Position{}) {
				last = err
			}
			if d := time.Since(asked); d > 5*time.Second || !errors.Is(last, context.Canceled) {
				t.Errorf("ended after %s with %v", d, last)
			}
			close(gone)
		})
	}
}

// A swallower lets nothing through.
type swallower struct{ net.Conn }

func (swallower) Write(b []byte) (int, error) { return len(b), nil }

func TestOneLineIsLoggedForEachChangeOfState(t *testing.T) {
	var refuse atomic.Bool
	s := newPrimary(t, MySQL, func(d *dump) {
		d.log([][]event{transaction(MySQL, 1, 10), transaction(MySQL, 2, 20)}[:min(2, d.no+1)])
		if d.no > 0 {
			d.beat()
		}
		refuse.Store(true)
	})
	s.executed = scriptSID.String() + ":1-2"
	front := proxy(t, s.lines.Addr().String(), func(c net.Conn) net.Conn {
		if refuse.Load() {
			return nil
		}
		return c
	})
	var log lockedBuffer
	store := &store{config: s.config()}
	store.config.Addr = front
	store.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	tl := store.tail(t, Position{})
	tl.line()
	go func() {
		await(t, "three attempts", func() bool {
			n := uint64(0)
			for _, c := range tl.Stats().Reconnects {
				n += c
			}
			return n >= 4
		})
		refuse.Store(false)
	}()
	tl.line()
	var lines []string
	for l := range strings.Lines(log.String()) {
		_, msg, _ := strings.Cut(l, "msg=")
		lines = append(lines, msg[:strings.Index(msg, " addr=")])
	}
	want := []string{`"binlog connected"`, `"binlog connection lost"`, `"binlog connected"`}
	if !slices.Equal(lines, want) {
		t.Errorf("logged %q, want %q\n%s", lines, want, log.String())
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the password is in the log")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// proxy forwards connections to addr; wrap may change what is written to the client, or
// refuse it by nil.
func proxy(t testing.TB, addr string, wrap func(net.Conn) net.Conn) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wait.Wait()
	})
	wait.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			out := wrap(client)
			if out == nil {
				client.Close()
				server.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, client, server)
			mu.Unlock()
			end := func() { client.Close(); server.Close() }
			wait.Go(func() { io.Copy(out, server); end() })
			wait.Go(func() { io.Copy(server, client); end() })
		}
	})
	return l.Addr().String()
}

// A cutter breaks the connection after some bytes to the client.
type cutter struct {
	net.Conn
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	written, err := c.Conn.Write(b[:n])
	if c.left -= n; err == nil && c.left == 0 {
		err = errors.New("cut")
	}
	return written, err
}

func TestARealServerReadThroughAWireThatBreaksAllTheTimeIsReadOnce(t *testing.T) {
	s := newStore(t, nil)
	from := s.position(t)
	random := seeded(t)
	var want []string
	for i := range 60 {
		statements := []string{"BEGIN"}
		line := ""
		for j := range 1 + random.IntN(4) {
			pos := 10*i + j
			statements = append(statements, fmt.Sprintf("INSERT INTO message_00 (pos, id, topic, msg_key, body, flag) VALUES (%d, 'i', 't', 'k', REPEAT('x', %d), 1)", pos, random.IntN(3000)))
			line += fmt.Sprintf(" %d", pos)
		}
		s.exec(t, append(statements, "COMMIT")...)
		want = append(want, line)
	}
	var mu sync.Mutex
	s.config.Addr = proxy(t, s.config.Addr, func(c net.Conn) net.Conn {
		mu.Lock()
		defer mu.Unlock()
		return &cutter{Conn: c, left: 3000 + random.IntN(30000)}
	})
	tl := s.tail(t, from)
	for _, w := range want {
		_, line, _ := strings.Cut(tl.line(), " ")
		if " "+line != w {
			t.Fatalf("rows %q, want %q", line, w)
		}
	}
	if tl.Stats().Reconnects[EOF] < 3 {
		t.Errorf("stats %+v", tl.Stats())
	}
}

func TestASequenceLeftEarlyLeavesNothingRunning(t *testing.T) {
	noLeaks(t)
	s := newPrimary(t, MySQL, func(d *dump) {
		d.head()
		for i := 0; d.send(transaction(MySQL, uint64(i+1), i)...); i++ {
		}
	})
	tl, err := NewTailer(s.config())
	if err != nil {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(tl.Txns(t.Context(), Position{}))
	next()
	await(t, "a full queue", func() bool { return tl.Stats().BufferedBytes > 10_000 })
	stop()
	if st := tl.Stats(); st.BufferedBytes != 0 || st.Connected {
		t.Errorf("stats %+v", st)
	}
}
