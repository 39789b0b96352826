package outbox_test

import (
	"database/sql"
	"errors"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/message"
	"notifymirror/notifyd/outbox"
	"notifymirror/notifyd/schema/migrate"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestARowCommitsOrRollsBackWithTheApplicationsData(t *testing.T) {
	dsn := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), dsn, migrate.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec("CREATE TABLE orders (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	send := func(order int, m outbox.Message, commit bool) string {
		t.Helper()
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec("INSERT INTO orders VALUES (?)", order); err != nil {
			t.Fatal(err)
		}
		id, err := outbox.Insert(t.Context(), tx, m)
		if err != nil {
			t.Fatal(err)
		}
		if commit {
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		return id.String()
	}
	kept := send(1, outbox.Message{Schema: cfg.DBName, Topic: "orders", Key: "1", Headers: map[string]string{"a": "ü"}, Body: []byte("x")}, true)
	send(2, outbox.Message{Topic: "orders"}, false)
	empty := send(3, outbox.Message{Topic: "orders"}, true)
	rows, err := db.Query("SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')), headers, body FROM outbox ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got [][3]string
	for rows.Next() {
		var r [3]string
		if err := rows.Scan(&r[0], &r[1], &r[2]); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	want := [][3]string{{kept, `{"a":"ü"}`, "x"}, {empty, "", ""}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("outbox holds %q, want %q", got, want)
	}
}

func TestAMessageThatBreaksALimitIsNotInserted(t *testing.T) {
	var field *message.FieldError
	if _, err := outbox.Insert(t.Context(), nil, outbox.Message{Topic: "_x"}); !errors.As(err, &field) || field.Field != "topic" {
		t.Errorf("got %v", err)
	}
}
