package canal

import (
	"errors"
	"strings"
)

// Reasons for which a tailer stops and waits for an operator. Every one arrives inside
// a [*StopError]; test with errors.Is.
var (
	// ErrPurged: the server no longer has binlog that the position still needs.
	ErrPurged = errors.New("binlog purged")
	// ErrAheadOfServer: the position holds transactions that the server does not have.
	ErrAheadOfServer = errors.New("position ahead of the server")
	// ErrFileGone: the server lists a binlog file that it cannot open.
	ErrFileGone = errors.New("binlog file gone")
	// ErrPastEnd: the position is behind the end of the server's binlog file.
	ErrPastEnd = errors.New("position past the end of the binlog")
	// ErrServerChanged: another server answers at the address.
	ErrServerChanged = errors.New("server changed")
	// ErrPosition: the position cannot be read, or is of the other flavor.
	ErrPosition = errors.New("position not usable")
	// ErrAuth: the server refused user or password, or this host.
	ErrAuth = errors.New("login refused")
	// ErrGrant: the account may not read the binlog.
	ErrGrant = errors.New("missing grant")
	// ErrServerIDTaken: another reader uses the configured server id.
	ErrServerIDTaken = errors.New("server id taken")
	// ErrSettings: a setting of the server is not what a complete copy needs.
	ErrSettings = errors.New("server settings")
	// ErrTextDML: a statement was logged as text, so its rows are not in the binlog.
	ErrTextDML = errors.New("statement logged as text")
	// ErrPartialRow: a row image lacks a column.
	ErrPartialRow = errors.New("row image without a column")
	// ErrNoColumnNames: a table map event carries no column names.
	ErrNoColumnNames = errors.New("column names not logged")
	// ErrColumnType: a watched table has a column of a type that is not decoded here.
	ErrColumnType = errors.New("column type not supported")
	// ErrXA: an XA transaction was prepared with rows of a watched table.
	ErrXA = errors.New("xa transaction on a watched table")
	// ErrIncident: the server says that its binlog has a hole.
	ErrIncident = errors.New("binlog incident")
	// ErrUnknownEvent: an event kind, or an order of events, that is not known here.
	ErrUnknownEvent = errors.New("unknown binlog event")
	// ErrCorrupt: an event could not be decoded, also after reconnecting.
	ErrCorrupt = errors.New("binlog event not decodable")
	// ErrTooLarge: an event needs more memory than it may.
	ErrTooLarge = errors.New("binlog event too large")
	// ErrSpool: the spool file could not be written, or reached its limit.
	ErrSpool = errors.New("spool file")
)

// A StopError ends a sequence of transactions: no retry can mend it. It is one line:
// what, where, how to mend.
type StopError struct {
	// Reason is one of the sentinels of this package.
	Reason error
	// What happened, in this case.
	What string
	// Where: address, GTID, table, as far as known.
	Where string
	// Mend is what to do or type.
	Mend string
	// Cause is the error underneath, if there is one.
	Cause error
}

// Error is "reason: what: cause, at where; mend".
func (e *StopError) Error() string {
	var b strings.Builder
	b.WriteString(e.Reason.Error())
	if e.What != "" {
		b.WriteString(": " + e.What)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	if e.Where != "" {
		b.WriteString(", at " + e.Where)
	}
	if e.Mend != "" {
		b.WriteString("; " + e.Mend)
	}
	return b.String()
}

// Unwrap gives the reason and the cause.
func (e *StopError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// at returns the error with a place put before the one it has.
func (e *StopError) at(place string) *StopError {
	c := *e
	switch {
	case c.Where == "":
		c.Where = place
	case place != "":
		c.Where = place + ", " + c.Where
	}
	return &c
}

// acceptGap is how an operator goes on when something cannot be read any more.
const acceptGap = "what was in between is lost to the mirror: continue with `notify mirror resume --accept-gap`"
