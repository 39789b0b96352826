package preflight

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Error numbers of the server.
const (
	errTooManyConnections = 1040
	errSchemaDenied       = 1044
	errAccessDenied       = 1045
	errUnknownDatabase    = 1049
	errHostDenied         = 1130
	errTableDenied        = 1142
	errColumnDenied       = 1143
	errNoSuchTable        = 1146
	errPrivilegeMissing   = 1227
	errPluginMissing      = 1524
	errSocketAccount      = 1698
	errSecureOnly         = 3159
)

// connectProblem says why there is no connection. It never quotes the password.
func connectProblem(cfg *mysql.Config, err error) Problem {
	where := cfg.Net + "(" + cfg.Addr + ")"
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return unreachable(cfg, where, err)
	}
	switch server.Number {
	case errAccessDenied, errSocketAccount:
		return problemf(codeDenied, "%s refuses user %q (%s): correct the user or password in the store's dsn, or let an administrator type: ALTER USER '%s'@'HOST' IDENTIFIED BY 'PASSWORD' with the account's HOST",
			where, cfg.User, passwordUse(cfg), cfg.User)
	case errHostDenied:
		return problemf(codeDenied, "%s takes no connections from this machine: let an administrator create an account for it: CREATE USER '%s'@'THIS-HOST' IDENTIFIED BY 'PASSWORD'",
			where, cfg.User)
	case errPluginMissing:
		return problemf(codeDenied, "%s cannot authenticate user %q: %s: give the account a method that the server has: ALTER USER '%s'@'HOST' IDENTIFIED BY 'PASSWORD'",
			where, cfg.User, server.Message, cfg.User)
	case errSecureOnly:
		return problemf(codeConfig, "%s takes encrypted connections only: add ?tls=true (or tls=skip-verify) to the store's dsn", where)
	case errTooManyConnections:
		return problemf(codeUnreachable, "%s has no free connection: raise max_connections on the server, or end some clients", where)
	}
	return problemf(codeFailed, "%s: %s", where, server)
}

func passwordUse(cfg *mysql.Config) string {
	if cfg.Passwd == "" {
		return "no password was given"
	}
	return "a password was given"
}

// unreachable is for errors of the network and the handshake.
func unreachable(cfg *mysql.Config, where string, err error) Problem {
	var dns *net.DNSError
	var op *net.OpError
	var cause string
	switch {
	case errors.As(err, &dns):
		cause = "the name " + dns.Name + " is not known"
	case errors.Is(err, context.DeadlineExceeded):
		cause = "no answer in time"
	case errors.As(err, &op):
		cause = op.Err.Error()
	default:
		cause = err.Error()
	}
	if cfg.Passwd != "" {
		cause = strings.ReplaceAll(cause, cfg.Passwd, "***")
	}
	return problemf(codeUnreachable, "no connection to %s: %s: start the server, or correct host and port in the store's dsn", where, cause)
}

func isCode(err error, numbers ...uint16) bool {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return false
	}
	for _, n := range numbers {
		if server.Number == n {
			return true
		}
	}
	return false
}
