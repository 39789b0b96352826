package preflight

import (
	"context"
	"crypto/x509"
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
			do("correct the user or password in the store's dsn, or let an administrator type: ALTER USER '%s'@'HOST' IDENTIFIED %s with the account's HOST; %s",
				cfg.User, byPassword, whereRequired(cfg)))
	case errHostDenied:
		r.refuse(codeDenied, where+" takes no connections from this machine", "",
			do("let an administrator create an account for it: CREATE USER '%s'@'THIS-HOST' IDENTIFIED %s", cfg.User, byPassword))
	case errPluginMissing:
		r.refuse(codeDenied, fmt.Sprintf("%s cannot authenticate user %q", where, cfg.User), server.Message,
			do("give the account a method that the server has: ALTER USER '%s'@'HOST' IDENTIFIED %s", cfg.User, byPassword))
	case errSecureOnly:
		r.refuse(codeConfig, where+" takes encrypted connections only", "", do("add ?tls-ca=FILE to the store's dsn, or ?tls=true if a known authority signed the server's certificate"))
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
	mend := "start the server, or correct host and port in the store's dsn"
	if more := mendTLS(err); more != "" {
		mend = more
	}
	r.refuse(codeUnreachable, "no connection to "+where+": "+cause, "", do("%s", mend))
}

// whereRequired is what an account wants that has REQUIRE, if it is that.
func whereRequired(cfg *mysql.Config) string {
	if cfg.TLS == nil {
		return "where the account has REQUIRE SSL, add ?tls-ca=FILE to the dsn"
	}
	return "where the account has REQUIRE X509, name tls-cert=FILE and tls-key=FILE in the dsn"
}

// mendTLS mends a connection that did not become a secure one; empty for any other error.
func mendTLS(err error) string {
	if errors.Is(err, mysql.ErrNoTLS) {
		return "give the server ssl_cert and ssl_key, or take TLS out of the store's dsn"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "name the authority that signed the server's certificate: ?tls-ca=FILE in the store's dsn"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "name the server in the store's dsn as its certificate does"
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return "renew the server's certificate, or set this machine's clock"
	}
	return ""
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
