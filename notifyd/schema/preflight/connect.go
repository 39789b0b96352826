package preflight

import (
	"context"
	"errors"
	"fmt"
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
func (r *Report) connectProblem(cfg *mysql.Config, err error) {
	where := cfg.Net + "(" + cfg.Addr + ")"
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		r.unreachable(cfg, where, err)
		return
	}
	byPassword := "BY 'PASSWORD'"
	switch server.Number {
	case errAccessDenied, errSocketAccount:
		r.refuse(codeDenied, fmt.Sprintf("%s refuses user %q (%s)", where, cfg.User, passwordUse(cfg)), "",
			do("correct the user or password in the store's dsn, or let an administrator type: ALTER USER '%s'@'HOST' IDENTIFIED %s with the account's HOST", cfg.User, byPassword))
	case errHostDenied:
		r.refuse(codeDenied, where+" takes no connections from this machine", "",
			do("let an administrator create an account for it: CREATE USER '%s'@'THIS-HOST' IDENTIFIED %s", cfg.User, byPassword))
	case errPluginMissing:
		r.refuse(codeDenied, fmt.Sprintf("%s cannot authenticate user %q", where, cfg.User), server.Message,
			do("give the account a method that the server has: ALTER USER '%s'@'HOST' IDENTIFIED %s", cfg.User, byPassword))
	case errSecureOnly:
		r.refuse(codeConfig, where+" takes encrypted connections only", "", do("add ?tls=true (or tls=skip-verify) to the store's dsn"))
	case errTooManyConnections:
		r.refuse(codeUnreachable, where+" has no free connection", "", do("raise max_connections on the server, or end some clients"))
	default:
		r.refuse(codeFailed, where+" refuses the connection", server.Error(), do("mend what it names"))
	}
}

func passwordUse(cfg *mysql.Config) string {
	if cfg.Passwd == "" {
		return "no password was given"
	}
	return "a password was given"
}

// unreachable is for errors of the network and the handshake.
func (r *Report) unreachable(cfg *mysql.Config, where string, err error) {
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
	r.refuse(codeUnreachable, "no connection to "+where+": "+cause, "", do("start the server, or correct host and port in the store's dsn"))
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
