// Package dsn parses the address of a store, user:password@tcp(host:port)/schema, so that
// no message ever shows the password.
package dsn

import (
	"errors"
	"fmt"
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
// password.
func Parse(address string) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(address)
	switch {
	case address == "":
		return nil, fmt.Errorf("%w: it is empty; its form is %s", ErrInvalid, Form)
	case err != nil:
		return nil, fmt.Errorf("%w: it does not parse; its form is %s", ErrInvalid, Form)
	case cfg.DBName == "":
		return nil, fmt.Errorf("%w: it names no schema; its form is %s", ErrInvalid, Form)
	case cfg.User == "":
		return nil, fmt.Errorf("%w: it names no user; its form is %s", ErrInvalid, Form)
	case len(cfg.DBName) > 64:
		return nil, fmt.Errorf("%w: the name of its schema is %d bytes; the limit is 64", ErrInvalid, len(cfg.DBName))
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = connectTimeout
	}
	cfg.Logger = &mysql.NopLogger{}
	return cfg, nil
}

// Redact returns the address without its password and parameters, for messages.
func Redact(cfg *mysql.Config) string {
	return fmt.Sprintf("%s@%s(%s)/%s", cfg.User, cfg.Net, cfg.Addr, cfg.DBName)
}
