// Package dbtest gives tests a real database: one server per test binary, a fresh schema per
// test. The server is the one named by the environment variable NOTIFY_TEST_MYSQLD, else the
// one that embedded.Find finds.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }
//
// The server starts with the first test that asks for it. Its settings are durable, as a
// store's are.
package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"notifymirror/notifyd/embedded"
)

// EnvServer names the environment variable with the path of the server that tests use.
const EnvServer = "NOTIFY_TEST_MYSQLD"

// patience bounds a start and a stop.
const patience = 2 * time.Minute

// server is shared by the tests of one binary, which is why it is global.
var server shared

type shared struct {
	running atomic.Bool
	once    sync.Once
	dir     string
	db      *embedded.DB
	err     error
}

// Run runs the package's tests, then stops the server and removes its directory. It returns
// what os.Exit wants.
func Run(m *testing.M) int {
	server.running.Store(true)
	code := m.Run()
	if err := server.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		return max(code, 1)
	}
	return code
}

// Start returns the test binary's server, starting it if it is the first to ask. A test must
// not stop it; Private is for that.
func Start(t testing.TB) *embedded.DB {
	t.Helper()
	db, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// Shared is Start for runnable examples, which have no testing.TB.
func Shared() (*embedded.DB, error) {
	if !server.running.Load() {
		return nil, errors.New("dbtest: the package needs: func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }")
	}
	server.once.Do(server.start)
	return server.db, server.err
}

func (s *shared) start() {
	found, err := Server()
	if err != nil {
		s.err = err
		return
	}
	sweep(os.TempDir(), time.Minute, time.Now())
	if s.dir, s.err = os.MkdirTemp("", pattern); s.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.db, s.err = embedded.Start(ctx, embedded.Config{Dir: s.dir, Server: found, StartTimeout: patience})
}

func (s *shared) stop() error {
	if s.db != nil {
		s.db.Kill() // its data is thrown away
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Server is the binary that tests use.
func Server() (embedded.Server, error) { return embedded.Find(os.Getenv(EnvServer)) }

// Schema returns the DSN of a new, empty schema on the shared server. It is dropped when the
// test ends.
func Schema(t testing.TB) string {
	t.Helper()
	return SchemaOn(t, Start(t))
}

// names numbers the schemas of this binary.
var names atomic.Int64

// SchemaOn is Schema on a server of the test's own.
func SchemaOn(t testing.TB, db *embedded.DB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", names.Add(1))
	exec(t, db, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		select {
		case <-db.Done():
		default:
			exec(t, db, "DROP DATABASE IF EXISTS "+name)
		}
	})
	return db.DSN(name)
}

// Private starts a server that is the test's own, to be killed or badly configured: c.Dir is
// a temporary directory unless set, c.Server is the one that tests use. It ends with the test.
func Private(t testing.TB, c embedded.Config) *embedded.DB {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "db")
	}
	if c.Server.Path == "" {
		found, err := Server()
		if err != nil {
			t.Fatal(err)
		}
		c.Server = found
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = patience
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db, err := embedded.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Kill)
	return db
}

func exec(t testing.TB, db *embedded.DB, statement string) {
	t.Helper()
	pool, err := sql.Open("mysql", db.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
