package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"notifymirror/e2e/stage"
	"notifymirror/mirror"
)

// Everything that carries the mirror fails, under load, in a random order: canald dies, or
// sleeps for longer than Kafka waits for its transaction; its connection to the binlog is
// killed, once while a large transaction is sent; the database and Kafka are restarted; the
// lines to them are cut without a word to either side. Sometimes the next fault comes while
// the mirror still mends the last. In the end it has every committed message once, in the
// order of the commits, and seq has neither a hole nor a repeat.
func TestMirrorIsExactWhateverFailsAroundIt(t *testing.T) {
	f := newFaults(t)
	for range stage.Soak() {
		for _, fault := range f.shuffled() {
			f.load.AwaitMore(300, faultLimit)
			t.Logf("%s", fault.name)
			fault.happens()
			if f.r.IntN(3) > 0 {
				f.recovered()
			}
		}
	}
	f.recovered()
	f.binlog = f.BinlogFrom(f.began) // only now: all restarts are over
	f.audit()
}

// faultLimit bounds what follows a fault.
const faultLimit = 2 * time.Minute

// faults is a play in which all that carries the mirror can break.
type faults struct {
	*play
	r     *rand.Rand
	at    *stage.Breakable
	began mysql.Position
}

type fault struct {
	name    string
	happens func()
}

func newFaults(t *testing.T) *faults {
	t.Helper()
	at := stage.NewBreakable(t)
	f := &faults{at: at, play: &play{Stage: at.Stage, t: t}, r: stage.Random(t)}
	f.began = f.BinlogEnd()
	f.a = f.Notifyd("a").Start()
	f.AwaitShards(time.Minute, f.a)
	f.mirror = f.Canald("mirror", quickTransactions).Start()
	c := f.Client(f.a)
	f.Topic(c, "trades")
	f.load = f.Load(c, "trades", 2)
	return f
}

func (f *faults) shuffled() []fault {
	all := []fault{
		{"kill -9 of canald", func() { f.mirror.Kill(); f.mirror.Launch() }},
		{"canald sleeps", f.sleep},
		{"the binlog connection is killed", f.killDump},
		{"the binlog connection is killed in a large transaction", f.killDumpInside},
		{"kill -9 of the database", func() { f.at.RestartStore(true) }},
		{"restart of the database", func() { f.at.RestartStore(false) }},
		{"restart of Kafka", func() { f.mirror.Freeze(); f.at.RestartKafka(); f.mirror.Thaw() }},
		{"the line to the database is cut", func() { f.cut(f.at.ToStore) }},
	}
	if f.at.ToKafka != nil {
		all = append(all, fault{"the line to Kafka is cut", func() { f.cut(f.at.ToKafka) }})
	}
	f.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// overdue is how many messages the load publishes in more than the time that Kafka leaves a
// transaction open.
const overdue = 5000

// sleep stops canald until Kafka has given its transaction up.
func (f *faults) sleep() {
	f.mirror.Freeze()
	f.load.AwaitMore(overdue, faultLimit)
	f.mirror.Thaw()
}

// cut leaves a line cut for as long as sleep sleeps.
func (f *faults) cut(line *stage.Line) {
	line.Cut()
	f.load.AwaitMore(overdue, faultLimit)
	line.Mend()
}

// killDump kills whoever reads the binlog, as soon as somebody does.
func (f *faults) killDump() {
	f.t.Helper()
	db := f.Open()
	stage.Eventually(f.t, faultLimit, "somebody reads the binlog", func() error {
		var id int64
		err := db.QueryRowContext(f.t.Context(), "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%' LIMIT 1").Scan(&id)
		if err == nil {
			_, err = db.ExecContext(f.t.Context(), fmt.Sprintf("KILL %d", id))
		}
		return err
	})
}

// killDumpInside kills it while a transaction of 32 MiB is on its way to canald.
func (f *faults) killDumpInside() {
	f.t.Helper()
	db := f.Open()
	for _, statement := range []string{"DROP TABLE IF EXISTS bulk", "CREATE TABLE bulk (filler VARBINARY(4096) NOT NULL)"} {
		if _, err := db.ExecContext(f.t.Context(), statement); err != nil {
			f.t.Fatalf("%s: %v", statement, err)
		}
	}
	tx, err := db.BeginTx(f.t.Context(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer tx.Rollback()
	fill := "INSERT INTO bulk SELECT REPEAT('x', 4096)"
	for range 14 {
		if _, err := tx.ExecContext(f.t.Context(), fill); err != nil {
			f.t.Fatalf("%s: %v", fill, err)
		}
		fill = "INSERT INTO bulk SELECT * FROM bulk" // as many again
	}
	if err := tx.Commit(); err != nil {
		f.t.Fatal(err)
	}
	f.killDump()
}

// recovered waits until the mirror copies again and has all that was acknowledged by now.
func (p *play) recovered() {
	p.t.Helper()
	due := uint64(p.load.Acked())
	took := stage.Eventually(p.t, faultLimit, "the mirror has caught up", func() error {
		s, err := mirrorStatus(p.mirror)
		if err == nil && (s.State != mirror.Copying || s.Seq < due) {
			err = fmt.Errorf("%d messages are due: %+v", due, s)
		}
		return err
	})
	p.t.Logf("the mirror has what was acknowledged, %s later", took.Round(time.Millisecond))
}
