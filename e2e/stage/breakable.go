package stage

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"notifymirror/e2e/engines"
	"notifymirror/mirror/embedded"
	database "notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// restartLimit bounds a server's end and its next start.
const restartLimit = 3 * time.Minute

// Breakable is a stage whose servers are its own: they can be restarted, and its canalds reach
// them over lines that can be cut.
type Breakable struct {
	*Stage
	// ToStore is the canalds' way to the database. ToKafka is everybody's way to Kafka; nil to
	// an embedded one, which tells its clients no address but its own.
	ToStore, ToKafka *Line

	restart func()
}

// NewBreakable sets such a scene, with the kinds of servers that New would have.
func NewBreakable(t testing.TB) *Breakable {
	t.Helper()
	db := dbtest.Private(t, database.Config{})
	b := &Breakable{Stage: &Stage{t: t, Database: db, DSN: dbtest.SchemaOn(t, db), dir: t.TempDir()}}
	b.name()
	b.ToStore = NewLine(t, db.Addr())
	over, err := driver.ParseDSN(b.DSN)
	if err != nil {
		t.Fatal(err)
	}
	over.Addr = b.ToStore.Addr
	b.MirrorDSN = over.FormatDSN()
	if jars := os.Getenv(engines.EnvKafkaJars); jars != "" {
		b.apache(jars)
	} else {
		b.embed()
	}
	return b
}

// RestartKafka ends Kafka in order and starts it again. Whoever writes transactions must be
// frozen: an Apache Kafka 4.4 of one node has been seen to come back without the marker of a
// transaction whose commit it had answered a moment before, and its readers stand still there
// for ever: it takes a partition that has no leader yet for one that was deleted.
func (b *Breakable) RestartKafka() {
	b.t.Helper()
	b.restart()
}

// RestartStore ends the database, by kill -9 or in order, and starts it again.
func (b *Breakable) RestartStore(kill bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), restartLimit)
	defer cancel()
	if kill {
		b.Database.Kill()
	} else if err := b.Database.Stop(ctx); err != nil {
		b.t.Fatal(err)
	}
	if err := b.Database.Restart(ctx); err != nil {
		b.t.Fatal(err)
	}
}

// apache starts an Apache Kafka that sends its clients over a line.
func (b *Breakable) apache(jars string) {
	b.t.Helper()
	port, err := database.FreePort()
	if err != nil {
		b.t.Fatal(err)
	}
	b.ToKafka = NewLine(b.t, addr(port))
	ctx, cancel := context.WithTimeout(b.t.Context(), restartLimit)
	defer cancel()
	k, err := engines.StartKafka(ctx, engines.KafkaConfig{Jars: jars, Dir: filepath.Join(b.dir, "kafka"), Port: port,
		Settings: map[string]string{"advertised.listeners": "BROKER://" + b.ToKafka.Addr}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(k.Kill)
	b.Kafka = b.ToKafka.Addr
	b.restart = func() {
		b.t.Helper()
		AwaitSettled(b.t, b.Kafka)
		ctx, cancel := context.WithTimeout(b.t.Context(), restartLimit)
		defer cancel()
		if err := k.Stop(ctx); err != nil {
			b.t.Fatal(err)
		}
		if err := k.Restart(ctx); err != nil {
			b.t.Fatal(err)
		}
	}
}

// embed starts an embedded Kafka.
func (b *Breakable) embed() {
	b.t.Helper()
	config := embedded.Config{Dir: filepath.Join(b.dir, "kafka")}
	var k *embedded.Kafka
	start := func() {
		b.t.Helper()
		var err error
		if k, err = embedded.Start(config); err != nil {
			b.t.Fatal(err)
		}
	}
	stop := func() {
		b.t.Helper()
		if err := k.Close(); err != nil {
			b.t.Errorf("stage: %v", err)
		}
	}
	start()
	b.t.Cleanup(func() { stop() })
	config.Addr = k.Addrs()[0]
	b.Kafka, b.embedded = config.Addr, true
	b.restart = func() {
		b.t.Helper()
		stop()
		start()
	}
}
