package mirror

import (
	"strings"
	"testing"

	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
)

// What canal's list of effects (canal/sessions_test.go) leaves to the mirror.

// A session that hides its rows from the binlog leaves nothing there to be seen, but it uses
// up a number.
func TestAMessageHiddenFromTheBinlogIsMissedAtTheNextOneOfItsShard(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	c := b.realCopier()
	stop := b.run(c)
	b.insert(0, 2, "trades", short)
	b.awaitSeq(c)
	b.hidden(0, 1)
	b.insert(1, 3, "trades", short)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.insert(0, 1, "trades", short)
	b.mustHalt(b.realCopier(), ErrOrder, ReasonOrder, "shard 0: gap between pos 1:2 and 1:4", "--accept-gap")
}

// hidden inserts n messages in a shard that are not logged.
func (b *storeBench) hidden(shard, n int) {
	b.t.Helper()
	conn, err := b.db.Conn(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(b.t.Context(), "SET SESSION sql_log_bin = OFF"); err != nil {
		b.t.Fatal(err)
	}
	tx, err := conn.BeginTx(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer tx.Rollback()
	known := len(b.ids)
	b.insertIn(tx, shard, n, "trades", short)
	b.ids = b.ids[:known]
	if err := tx.Commit(); err != nil {
		b.t.Fatal(err)
	}
	b.db.SetMaxIdleConns(0) // the session must not be used again
}

// An insert names the columns that its version of the schema has. With the row image MINIMAL
// the binlog has no other, and a newer version's must not be missed.
func TestColumnsThatWereAddedToTheMessageTablesDoNotStopTheMirror(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.insert(0, 2, "trades", short)
	b.sql("ALTER TABLE " + schema.Message(0) + " ADD COLUMN extra INT NOT NULL DEFAULT 1 FIRST, ADD COLUMN more BIGINT AS (pos + 1) VIRTUAL AFTER id")
	b.insert(0, 2, "trades", short)
	b.sql("SET GLOBAL binlog_row_image = FULL")
	t.Cleanup(func() { b.db.Exec("SET GLOBAL binlog_row_image = MINIMAL") })
	b.db.SetMaxIdleConns(0)
	b.insert(0, 2, "trades", short)
	c := b.realCopier()
	stop := b.run(c)
	b.awaitSeq(c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.checkIDs()
}

func TestAMessageTableWithoutAColumnThatIsReadHalts(t *testing.T) {
	b := newStoreBench(t, dbtest.Start(t))
	b.sql("ALTER TABLE " + schema.Message(0) + " DROP COLUMN headers")
	b.sql(strings.NewReplacer("TABLE", schema.Message(0)).Replace("INSERT INTO TABLE (pos, id, topic, msg_key, body, mirrored, born_at) VALUES (1, 'id', 't', 'k', 'b', 1, 1)"))
	b.mustHalt(b.realCopier(), ErrRow, ReasonRow, "message_00 has no column headers")
}
