package stage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	driver "github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/schema"
)

// Insert is a row that was inserted into a message table, as the binlog tells it.
type Insert struct {
	Shard int
	// Epoch and N are the two parts of pos.
	Epoch, N int64
	ID       string
	// Seen is when the binlog told.
	Seen time.Time
}

// Binlog follows what is inserted into the store's message tables, in the order of the
// commits, by go-mysql alone and not by our reader.
type Binlog struct {
	s      *Stage
	schema string
	config replication.BinlogSyncerConfig

	mu      sync.Mutex
	at      mysql.Position
	inserts []Insert
}

// Binlog follows the binlog from now until the test ends.
func (s *Stage) Binlog() *Binlog {
	s.t.Helper()
	return s.BinlogFrom(s.BinlogEnd())
}

// BinlogFrom is Binlog from the beginning of a place's file.
func (s *Stage) BinlogFrom(at mysql.Position) *Binlog {
	s.t.Helper()
	cfg, err := driver.ParseDSN(s.DSN)
	if err != nil {
		s.t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		s.t.Fatal(err)
	}
	flavor := mysql.MySQLFlavor
	if s.Database.Server().Flavor == embedded.MariaDB {
		flavor = mysql.MariaDBFlavor
	}
	b := &Binlog{s: s, schema: cfg.DBName, at: at, config: replication.BinlogSyncerConfig{
		ServerID: rand.Uint32N(1<<30) + 1, Flavor: flavor, Host: host, Port: uint16(number), User: cfg.User, Password: cfg.Passwd,
		VerifyChecksum: true, Logger: slog.New(slog.DiscardHandler),
	}}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.run(ctx, at.Name) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			s.t.Errorf("binlog: %v", err)
		}
	})
	return b
}

// run follows from the beginning of a file on. One that a kill of the server cut off ends with
// an error, and the next one goes on.
func (b *Binlog) run(ctx context.Context, file string) error {
	for {
		err := b.file(ctx, file)
		if err == nil || !strings.Contains(err.Error(), "truncated in the middle of event") {
			return err
		}
		b.mu.Lock()
		name, number, _ := strings.Cut(b.at.Name, ".")
		b.mu.Unlock()
		n, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		file = fmt.Sprintf("%s.%06d", name, n+1)
	}
}

func (b *Binlog) file(ctx context.Context, name string) error {
	syncer := replication.NewBinlogSyncer(b.config)
	defer syncer.Close()
	events, err := syncer.StartSync(mysql.Position{Name: name, Pos: 4})
	if err != nil {
		return err
	}
	return b.follow(ctx, events)
}

// BinlogEnd is where the server's binlog ends.
func (s *Stage) BinlogEnd() mysql.Position {
	s.t.Helper()
	files := s.binlogFiles()
	return files[len(files)-1]
}

// BinlogStart is the oldest file of the server's binlog.
func (s *Stage) BinlogStart() string {
	s.t.Helper()
	return s.binlogFiles()[0].Name
}

// binlogFiles are the server's binlog files, the oldest first, each by its end.
func (s *Stage) binlogFiles() (files []mysql.Position) {
	s.t.Helper()
	rows, err := s.Open().QueryContext(s.t.Context(), "SHOW BINARY LOGS")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		s.t.Fatal(err)
	}
	var rest any
	for rows.Next() {
		var file mysql.Position
		targets := []any{&file.Name, &file.Pos, &rest}[:len(columns)]
		if err := rows.Scan(targets...); err != nil {
			s.t.Fatal(err)
		}
		files = append(files, file)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return files
}

func (b *Binlog) follow(ctx context.Context, events *replication.BinlogStreamer) error {
	for {
		event, err := events.GetEvent(ctx)
		if err != nil {
			return err
		}
		b.mu.Lock()
		switch e := event.Event.(type) {
		case *replication.RotateEvent:
			b.at = mysql.Position{Name: string(e.NextLogName), Pos: uint32(e.Position)}
		case *replication.RowsEvent:
			err = b.rows(event.Header.EventType, e)
		}
		b.at.Pos = max(b.at.Pos, event.Header.LogPos)
		b.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (b *Binlog) rows(kind replication.EventType, e *replication.RowsEvent) error {
	shard, ok := schema.ParseMessage(string(e.Table.Table))
	if !ok || string(e.Table.Schema) != b.schema {
		return nil
	}
	switch kind {
	case replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2, replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1:
	case replication.DELETE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv2, replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1:
		return nil
	default:
		return fmt.Errorf("%s in %s: messages are only inserted and deleted", kind, e.Table.Table)
	}
	for _, row := range e.Rows {
		pos := row[schema.MessagePos].(int64)
		var id uuid.UUID // the binlog leaves trailing zero bytes out
		copy(id[:], row[schema.MessageID].(string))
		b.inserts = append(b.inserts, Insert{Shard: shard, Epoch: pos >> 40, N: pos & (1<<40 - 1), ID: id.String(), Seen: time.Now()})
	}
	return nil
}

// AwaitEveryShard waits until a message was inserted into each shard after a moment. It
// returns when the last of them had one.
func (b *Binlog) AwaitEveryShard(after time.Time, shards int, limit time.Duration) (when time.Time) {
	b.s.t.Helper()
	Eventually(b.s.t, limit, "every shard takes messages", func() error {
		first := map[int]time.Time{}
		for _, i := range b.Inserts() {
			if _, known := first[i.Shard]; !known && i.Seen.After(after) {
				first[i.Shard], when = i.Seen, i.Seen
			}
		}
		if len(first) < shards {
			return fmt.Errorf("%d of %d shards took messages", len(first), shards)
		}
		return nil
	})
	return when
}

// Inserts is what was seen so far, in the order of the commits.
func (b *Binlog) Inserts() []Insert {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inserts[:len(b.inserts):len(b.inserts)]
}

// All reads to the end of the binlog as it is now, and returns every insert.
func (b *Binlog) All() []Insert {
	b.s.t.Helper()
	end := b.s.BinlogEnd()
	Eventually(b.s.t, time.Minute, "binlog read to its end", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.at.Compare(end) < 0 {
			return fmt.Errorf("read to %s of %s", b.at, end)
		}
		return nil
	})
	return b.Inserts()
}

// OneWriter returns an error where the inserts of a shard cannot come from one owner after
// the other: pos grows from commit to commit, so the epochs of two owners never mix, and n
// counts from 1 without a gap in each epoch. Nor may a message be inserted twice.
func OneWriter(inserts []Insert) error {
	last, ids := map[int]Insert{}, map[string]bool{}
	for _, i := range inserts {
		before := last[i.Shard]
		follows := i.Epoch == before.Epoch && i.N == before.N+1 || i.Epoch > before.Epoch && i.N == 1
		if !follows {
			return fmt.Errorf("shard %d: epoch %d n %d was committed behind epoch %d n %d", i.Shard, i.Epoch, i.N, before.Epoch, before.N)
		}
		if ids[i.ID] {
			return fmt.Errorf("shard %d: message %s was inserted twice", i.Shard, i.ID)
		}
		last[i.Shard], ids[i.ID] = i, true
	}
	return nil
}
