// Package dsn parses the address of a store, user:password@tcp(host:port)/schema, so that
// no message ever shows the password.
//
// An address may name several servers that replicate each other,
// user:password@tcp(db-1:3306,db-2:3306)/schema: a [Primary] finds the one that accepts
// writes, and a connector connects to that one. All have the same accounts and schema.
//
// TLS is asked for by ?tls=true, with the system's authorities, or by the paths of PEM files:
// ?tls-ca=FILE for those that may have signed the servers' certificates, and tls-cert=FILE and
// tls-key=FILE for a certificate of one's own. A server's certificate must be for the host in the
// address. The driver's other parameters hold too.
package dsn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Form is the form of an address, for messages and help.
const Form = "user:password@tcp(host:port)/schema"

// connectTimeout bounds dialling where the address itself says nothing.
const connectTimeout = 5 * time.Second

// ErrInvalid is wrapped by every error of Parse.
var ErrInvalid = errors.New("invalid store address")

// Parse returns the driver's configuration for an address, with a time limit for dialling,
// and without the driver's own log, which would write past ours. Its errors wrap ErrInvalid
// and quote nothing of the address: where it does not parse, any part of it may be the
// password. Addr holds all servers of the address, separated by commas: the driver itself
// understands one, so connect through NewConnector.
func Parse(address string) (*mysql.Config, error) {
	rest, files, err := cutTLS(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	cfg, err := parse(rest)
	switch {
	case address == "":
		return nil, fmt.Errorf("%w: it is empty; its form is %s", ErrInvalid, Form)
	case errors.Is(err, errServers):
		return nil, fmt.Errorf("%w: its servers are not tcp(host:port,host:port), each named once", ErrInvalid)
	case err != nil:
		return nil, fmt.Errorf("%w: it does not parse; its form is %s", ErrInvalid, Form)
	case cfg.DBName == "":
		return nil, fmt.Errorf("%w: it names no schema; its form is %s", ErrInvalid, Form)
	case cfg.User == "":
		return nil, fmt.Errorf("%w: it names no user; its form is %s", ErrInvalid, Form)
	case len(cfg.DBName) > 64:
		return nil, fmt.Errorf("%w: the name of its schema is %d bytes; the limit is 64", ErrInvalid, len(cfg.DBName))
	}
	if err := files.apply(cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = connectTimeout
	}
	cfg.Logger = &mysql.NopLogger{}
	return cfg, nil
}

// parse is the driver's ParseDSN, for several servers too.
func parse(address string) (*mysql.Config, error) {
	end := strings.LastIndexByte(address, '/') - 1
	start := strings.LastIndexByte(address[:max(0, end)], '(') + 1
	if end < 0 || address[end] != ')' || start == 0 || !strings.Contains(address[start:end], ",") {
		return mysql.ParseDSN(address)
	}
	var cfg *mysql.Config
	var servers []string
	for server := range strings.SplitSeq(address[start:end], ",") {
		var err error
		if cfg, err = mysql.ParseDSN(address[:start] + strings.TrimSpace(server) + address[end:]); err != nil {
			return nil, err
		}
		if cfg.Net != "tcp" || strings.TrimSpace(server) == "" || slices.Contains(servers, cfg.Addr) {
			return nil, errServers
		}
		servers = append(servers, cfg.Addr)
	}
	cfg.Addr = strings.Join(servers, ",")
	return cfg, nil
}

// errServers is returned for a list of servers with one that is empty, named twice, or no host:port.
var errServers = errors.New("list of servers")

// Redact returns the address without its password and parameters, for messages.
func Redact(cfg *mysql.Config) string {
	return fmt.Sprintf("%s@%s(%s)/%s", cfg.User, cfg.Net, cfg.Addr, cfg.DBName)
}
