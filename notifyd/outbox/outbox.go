// Package outbox lets an application send a message inside its own database transaction:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	_, err = tx.ExecContext(ctx, "INSERT INTO shop.orders ...")
//	id, err := outbox.Insert(ctx, tx, outbox.Message{Schema: "notify", Topic: "orders", Key: "42", Body: body})
//	...
//	err = tx.Commit()
//
// The row commits or rolls back with the application's data. A broker moves every committed
// row into the message table, once; from there it is pushed and mirrored like any other. The
// account needs INSERT on the outbox table and nothing else.
//
// What is not obvious:
//
//   - A transaction may stay open as long as it likes. Its row is relayed after the COMMIT,
//     and holds no other row up.
//   - The limits that are known here are checked here. A topic that is not declared, or a body above
//     the broker's own limit, is found by the relay: the row is then put aside with its reason,
//     and can be resubmitted.
package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/google/uuid"

	"notifymirror/notifyd/message"
)

// A Message is what the application sends.
type Message struct {
	// Schema holds the outbox table; empty: the connection's own schema.
	Schema string
	// ID names the message; zero: Insert makes a UUIDv7.
	ID uuid.UUID
	// Topic, Key, Headers and Body are those of a published message, with the same limits.
	Topic   string
	Key     string
	Headers map[string]string
	Body    []byte
}

// An Execer runs one statement: *sql.Tx, *sql.Conn, *sql.DB, or whatever wraps them.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Insert inserts the message into the outbox and returns its id. Nothing is sent unless the
// transaction of tx commits. A message that breaks a limit is refused with a
// *message.FieldError, and nothing is inserted.
func Insert(ctx context.Context, tx Execer, m Message) (uuid.UUID, error) {
	check := message.Message{Topic: m.Topic, Key: m.Key, Headers: m.Headers, Body: m.Body}
	if err := check.Validate(math.MaxInt); err != nil {
		return uuid.Nil, fmt.Errorf("outbox message: %w", err)
	}
	id, err := m.ID, error(nil)
	if id == uuid.Nil {
		if id, err = uuid.NewV7(); err != nil {
			return uuid.Nil, fmt.Errorf("outbox message: id: %w", err)
		}
	}
	headers, body := []byte{}, m.Body
	if len(m.Headers) > 0 {
		if headers, err = json.Marshal(m.Headers); err != nil {
			return uuid.Nil, fmt.Errorf("outbox message: headers: %w", err)
		}
	}
	if body == nil {
		body = []byte{}
	}
	table := "outbox"
	if m.Schema != "" {
		table = "`" + strings.ReplaceAll(m.Schema, "`", "``") + "`.outbox"
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO "+table+" (id, topic, msg_key, headers, body) VALUES (?, ?, ?, ?, ?)",
		id[:], m.Topic, []byte(m.Key), headers, body)
	if err != nil {
		return uuid.Nil, fmt.Errorf("outbox message: %w", err)
	}
	return id, nil
}
