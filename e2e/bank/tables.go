package bank

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// Topics between the banks.
const (
	TopicTransfers = "transfers"
	TopicRefunds   = "refunds"
)

// tables of a bank. Money is in cents.
var tables = [...]string{
	`CREATE TABLE account (id INT PRIMARY KEY, cents BIGINT NOT NULL CHECK (cents >= 0), closed TINYINT NOT NULL)`,
	// open: 1, and 0 once the money was taken or is not there.
	`CREATE TABLE orders (id INT PRIMARY KEY, account INT NOT NULL, payee INT NOT NULL, cents BIGINT NOT NULL,
		accident VARCHAR(32) NOT NULL, open TINYINT NOT NULL, KEY (open, id))`,
	`CREATE TABLE transfer (id CHAR(36) PRIMARY KEY, order_id INT NOT NULL UNIQUE, account INT NOT NULL, payee INT NOT NULL,
		cents BIGINT NOT NULL, undone TINYINT NOT NULL)`,
	`CREATE TABLE applied (id CHAR(36) PRIMARY KEY, payee INT NOT NULL, cents BIGINT NOT NULL, refused TINYINT NOT NULL)`,
	// happened: 1 by the local transaction of a half, 0 by a check that was faster.
	`CREATE TABLE sent (id CHAR(36) PRIMARY KEY, happened TINYINT NOT NULL)`,
	`CREATE TABLE accident (order_id INT NOT NULL, point VARCHAR(32) NOT NULL, PRIMARY KEY (order_id, point))`,
}

// Install makes a bank's tables.
func Install(ctx context.Context, db *sql.DB) error {
	for _, statement := range tables {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("bank's tables: %w", err)
		}
	}
	return nil
}

// A Transfer is the body of the messages.
type Transfer struct {
	// ID of the transfer, which is that of the message to B.
	ID string `json:"id,omitempty"`
	// Order is the number of the order that led to it.
	Order int `json:"order"`
	// Account of A that pays, and of B that is paid.
	Account int `json:"account"`
	Payee   int `json:"payee"`
	// Cents is above 0.
	Cents int64 `json:"cents"`
	// Accident is the point at which a process is to die once, or "".
	Accident Point `json:"accident,omitempty"`
}

// errKnown is returned when a row with the same key is there.
var errKnown = errors.New("known already")

// insert runs an INSERT. A duplicate key is errKnown.
func insert(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return known(err)
}

func known(err error) error {
	const duplicateKey = 1062
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && refused.Number == duplicateKey {
		return errKnown
	}
	return err
}

// change runs an UPDATE and reports whether it changed a row.
func change(ctx context.Context, tx *sql.Tx, query string, args ...any) (bool, error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
