package schema

import "errors"

var (
	// ErrNotInstalled is returned when the schema has no store row: nothing was installed
	// there yet, or an installation did not come to its end.
	ErrNotInstalled = errors.New("no store is installed in this schema: run notifyd migrate")

	// ErrOccupied is returned when the schema holds a table that is not a store's under a
	// name that a store needs. Nothing was made.
	ErrOccupied = errors.New("it is there and no store's: give the store a schema of its own on this server, CREATE DATABASE notify; a transaction may write to both")

	// ErrNewer is returned when the schema was installed by a newer program than this one.
	ErrNewer = errors.New("the schema is newer than this program: run the newer version of notifyd")
)
