package mirror

import (
	"context"
	"iter"
	"time"

	"notifymirror/canal"
)

// txn is a canal.Txn by its parts, so that tests can script one.
type txn struct {
	kind       canal.Kind
	gtid       string
	commitTime time.Time
	came       time.Time
	end        canal.Place
	server     canal.ServerID
	rows       iter.Seq2[canal.Row, error]
	after      func() canal.Position
}

// name is for people. What has no GTID does not come from the binlog.
func (t txn) name() string {
	if t.gtid == "" {
		return "snapshot of the tables"
	}
	return "transaction " + t.gtid
}

// A source yields a store's transactions in commit order, from the position it was opened at.
type source interface {
	txns(ctx context.Context) iter.Seq2[txn, error]
}
