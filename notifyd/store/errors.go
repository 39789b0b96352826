package store

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

var (
	// ErrFenced is returned when the shard has another epoch: another owner has it. Nothing was written.
	ErrFenced = errors.New("shard has another owner")
	// ErrVersion is returned when the registry changed since the exchange. Nothing was written.
	ErrVersion = errors.New("registry changed since the exchange")
	// ErrUnknown is returned when the outcome of a transaction could not be learned.
	ErrUnknown = errors.New("outcome of the transaction unknown")
	// ErrNotFree is returned when a shard cannot be taken: its lease is not over, or the
	// epoch expected is not the one found.
	ErrNotFree = errors.New("shard is not free")
	// ErrExists is returned when what was to be created is there already.
	ErrExists = errors.New("already exists")
	// ErrCollides is returned when Kafka could not tell two topics apart.
	ErrCollides = errors.New(`"." and "_" are one to Kafka`)
	// ErrNoTopic is returned when a topic is not declared.
	ErrNoTopic = errors.New("topic is not declared")
	// ErrNoGroup is returned when a group is not declared.
	ErrNoGroup = errors.New("group is not declared")
	// ErrNoEndpoint is returned when a group is not pushed to over HTTP.
	ErrNoEndpoint = errors.New("group has no webhook")
	// ErrNoSubscription is returned when a group does not subscribe to a topic.
	ErrNoSubscription = errors.New("there is no such subscription")
	// ErrForeign is returned when a store belongs to another registry.
	ErrForeign = errors.New("a store serves one cluster; give this one a schema of its own")
	// ErrAhead is returned when a store knows a registry that the main store has lost.
	ErrAhead = errors.New("the main store was restored from before it: restore it to a later time, or empty this store and give it a new schema")
	// ErrBusy is returned when a registry change could not get the epoch rows: a writer holds one.
	ErrBusy = errors.New("a writer holds the shard's epoch row; try again")
)

// Error numbers of MySQL and MariaDB.
const (
	codeDuplicate   = 1062
	codeManyRows    = 1242
	codeLockTimeout = 1205
	codeDeadlock    = 1213
	codeNoThread    = 1094
)

func hasCode(err error, codes ...uint16) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range codes {
		if e.Number == c {
			return true
		}
	}
	return false
}

// Retryable reports whether the same transaction may succeed if sent again. A duplicate is
// one: of a decision that another broker was taking at the same time.
func Retryable(err error) bool { return hasCode(err, codeLockTimeout, codeDeadlock, codeDuplicate) }

// RowsRefused reports whether the server refused the rows themselves (SQLSTATE 22 and 23), so that the
// same transaction fails however often it is sent.
func RowsRefused(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.SQLState[0] == '2' && (e.SQLState[1] == '2' || e.SQLState[1] == '3')
}

// refused reports whether the server itself answered with an error, so that the connection
// still stands and a ROLLBACK can be confirmed.
func refused(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e)
}

func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknown, err) }
