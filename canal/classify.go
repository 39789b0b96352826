package canal

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	sqlmysql "github.com/go-sql-driver/mysql"
)

// A stage is how far a connection had come when it failed.
type stage uint8

const (
	stageLogin  stage = iota // the short connection that asks for settings
	stageDump                // asking for the binlog
	stageStream              // reading it
)

// Error numbers of MySQL and MariaDB.
const (
	erAccessDenied    = 1045
	erSpecificAccess  = 1227
	erHostNotAllowed  = 1130
	erNoPasswordLogin = 1698
	erMasterFatal     = 1236
	erPurged          = 1789
	erKilledOther     = 4052 // MariaDB: another reader with our server id
	erServerShutdown  = 1053
	erQueryKilled     = 1317
	erConnKilled      = 1927
	erUnknownPlugin   = 1524
	erNoBinlog        = 1381
	erFileNotFound    = 29 // MariaDB: of a binlog file
)

// serverError finds the server's error in an error of either client library.
func serverError(err error) (code uint16, text string) {
	var a *sqlmysql.MySQLError
	if errors.As(err, &a) {
		return a.Number, a.Message
	}
	var b *gomysql.MyError
	if errors.As(err, &b) {
		return b.Code, b.Message
	}
	return 0, ""
}

// judge tells an error that an operator must mend from one that a new connection may.
func (c *Config) judge(err error, at stage) (*StopError, Cause) {
	var stop *StopError
	if errors.As(err, &stop) {
		if errors.Is(stop, ErrCorrupt) {
			return stop, Damaged
		}
		return stop, ""
	}
	code, text := serverError(err)
	switch code {
	case erAccessDenied, erSpecificAccess:
		if at == stageLogin {
			return c.loginError(err), ""
		}
		return &StopError{
			Reason: ErrGrant, Cause: plain(code, text),
			Mend: fmt.Sprintf("GRANT REPLICATION SLAVE ON *.* TO '%s'@'...' on the server", c.User),
		}, ""
	case erHostNotAllowed, erNoPasswordLogin, erUnknownPlugin:
		return c.loginError(err), ""
	case erPurged:
		return purgedError(text), ""
	case erFileNotFound:
		return fileGoneError(text), ""
	case erMasterFatal:
		return fatalDump(text, c.ServerID != 0)
	case erKilledOther:
		if c.ServerID != 0 {
			return takenError(text), ""
		}
		return nil, Killed
	case erServerShutdown, erQueryKilled, erConnKilled:
		return nil, Killed
	}
	return nil, causeOf(err, at)
}

func (c *Config) loginError(err error) *StopError {
	return &StopError{
		Reason: ErrAuth, Cause: plain(serverError(err)),
		Mend: fmt.Sprintf("check user %q and its password in the configuration, and the account's host on the server", c.User),
	}
}

func plain(code uint16, text string) error { return fmt.Errorf("error %d: %s", code, text) }

func takenError(text string) *StopError {
	return &StopError{
		Reason: ErrServerIDTaken, What: text,
		Mend: "leave server_id out of the configuration, so that a free one is taken, or give each reader its own",
	}
}

// fatalDump reads error 1236, which has one number for causes with different repairs;
// only its text tells them apart.
func fatalDump(text string, ownID bool) (*StopError, Cause) {
	t := strings.ToLower(text)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(t, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("same server_uuid/server_id", "same server id", "same server_id"):
		if ownID {
			return takenError(text), ""
		}
		return nil, Killed
	case has("not in the master's binlog", "not in the source's binlog", "more gtids than", "is in the future"):
		return aheadError(text), ""
	case has("purged", "could not find gtid state", "missing from", "too old"):
		return purgedError(text), ""
	case has("could not find first log file name", "could not open log file"):
		return fileGoneError(text), ""
	case has("impossible position", "position > file size"):
		return pastEndError(text), ""
	case has("truncated in the middle of event"):
		return incidentError(text), Damaged
	}
	return incidentError(text), ""
}

func incidentError(text string) *StopError {
	return &StopError{
		Reason: ErrIncident, What: text,
		Mend: "check the server's error log and its binlog files; " + acceptGap,
	}
}

// causeOf tells how a connection was lost.
func causeOf(err error, at stage) Cause {
	var timeout net.Error
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(),
		strings.Contains(err.Error(), "i/o timeout"): // go-mysql keeps only the text
		return Timeout
	case errors.Is(err, io.EOF), at == stageStream:
		return EOF
	}
	return Refused
}

// placed makes an error ready for the caller: a StopError with the address, or else
// the error with the address before it.
func (c *Config) placed(err error, at stage) error {
	if stop, _ := c.judge(err, at); stop != nil {
		return stop.at(c.Addr)
	}
	return fmt.Errorf("%s: %w", c.Addr, err)
}
