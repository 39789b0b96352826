package stage

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"notifymirror/mirror/embedded"
	database "notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// EnvKafka names the environment variable with the host:port of a Kafka to use instead of an
// embedded one.
const EnvKafka = "NOTIFY_TEST_KAFKA"

// Stage is one story's store and Kafka. All that it starts ends with the test.
type Stage struct {
	t testing.TB
	// Database is the server; DSN is the address of the store's schema on it, empty at first.
	Database *database.DB
	DSN      string
	// Kafka is the host:port of a broker.
	Kafka string
	// KafkaAccess is more of canald's kafka section, from a comma on, where the broker asks who comes.
	KafkaAccess string
	// MirrorDSN is how canalds reach the store that are made from then on. Empty: by DSN.
	MirrorDSN string
	// Prefix stands before the names of the mirror's topics, Cluster before its transactional
	// ids.
	Prefix, Cluster string
	// Outboxes are the DSNs of outbox-only stores, by name, of daemons that are made from then on.
	Outboxes map[string]string

	embedded bool
	dir      string
}

// New sets the scene.
func New(t testing.TB) *Stage {
	t.Helper()
	return On(t, dbtest.Start(t))
}

// On is New with a database server of the story's own.
func On(t testing.TB, db *database.DB) *Stage {
	t.Helper()
	s := &Stage{t: t, Database: db, DSN: dbtest.SchemaOn(t, db), Kafka: os.Getenv(EnvKafka), dir: t.TempDir()}
	s.name()
	if s.Kafka == "" {
		k, err := embedded.Start(embedded.Config{Dir: filepath.Join(s.dir, "kafka")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := k.Close(); err != nil {
				t.Errorf("stage: %v", err)
			}
		})
		s.Kafka, s.embedded = k.Addrs()[0], true
	}
	return s
}

// name gives the stage names of its own in Kafka.
func (s *Stage) name() {
	s.Cluster = fmt.Sprintf("e2e%08x", rand.Uint32())
	s.Prefix = s.Cluster + "."
}

// Open returns a pool on the store.
func (s *Stage) Open() *sql.DB {
	s.t.Helper()
	db, err := sql.Open("mysql", s.DSN)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() }) // an error tells only that the server was restarted meanwhile
	return db
}

// Schema returns the DSN of another schema on the stage's server, empty at first.
func (s *Stage) Schema() string {
	s.t.Helper()
	return dbtest.SchemaOn(s.t, s.Database)
}

// Free is a host:port on which nobody listens.
func Free(t testing.TB) string {
	t.Helper()
	port, err := database.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return addr(port)
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// write makes a file in the stage's directory and returns its path.
func (s *Stage) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}
