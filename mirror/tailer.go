package mirror

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"notifymirror/canal"
)

// tailerConfig is how the binlog of a store is read. shards is known before the binlog is
// opened, and never changes.
func tailerConfig(c Config, store string, dsn *mysql.Config, shards *atomic.Int32, log *slog.Logger) canal.Config {
	t := canal.Config{
		Addr: dsn.Addr, User: dsn.User, Password: dsn.Passwd, TLS: dsn.TLS,
		ServerID: c.serverID(store), Schema: dsn.DBName,
		Watch:    func(table string) bool { return isMessageTable(table, int(shards.Load())) },
		Columns:  messageColumns(),
		SpoolDir: c.SpoolDir, SpoolLimit: int64(c.SpoolBytes), Logger: log,
	}
	if dsn.AllowFallbackToPlaintext {
		t.TLS = nil
	}
	return t
}

// inspect asks the server for its identity and settings.
func inspect(ctx context.Context, c canal.Config) (canal.ServerInfo, error) {
	info, err := canal.Inspect(ctx, c)
	if err == nil {
		err = info.Check()
	}
	return info, sourceError(err)
}

// probing is a source beside the one that is copied: it logs and counts nothing, and leaves the
// configured server id to that one.
func probing(c canal.Config, at canal.Position) source {
	c.Logger, c.ServerID = slog.New(slog.DiscardHandler), 0
	tailer, err := canal.NewTailer(c)
	if err != nil { // it was checked before
		panic("mirror: " + err.Error())
	}
	return tailed{tailer, at}
}

// tailed is a Tailer at a position, as a source.
type tailed struct {
	tailer *canal.Tailer
	from   canal.Position
}

func (s tailed) txns(ctx context.Context) iter.Seq2[txn, error] {
	return func(yield func(txn, error) bool) {
		for t, err := range s.tailer.Txns(ctx, s.from) {
			if err != nil {
				yield(txn{}, fmt.Errorf("binlog: %w", err))
				return
			}
			if !yield(txn{t.Kind, t.GTID, t.CommitTime, t.Came, t.End, t.Server, t.Rows(), t.After}, nil) {
				return
			}
		}
	}
}
