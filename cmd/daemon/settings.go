package daemon

import (
	"cmp"
	"log/slog"
	"time"

	"notifymirror/notifyd/schema/dsn"
)

// StoresHint says how a store is named, behind what is wrong with the key stores.
const StoresHint = ": write stores: {a: {dsn: " + dsn.Form + "}}, or set NOTIFY_STORES_A_DSN"

// Settings are the keys that every daemon has beside its agent's own.
type Settings struct {
	// OpsListen is the host:port of /metrics, /livez, /readyz and /status. The default is
	// the daemon's own.
	OpsListen string `yaml:"ops_listen"`
	// LogLevel is debug, info, warn or error. Default info; --log-level overrides it.
	LogLevel string `yaml:"log_level"`
	// ShutdownDelay is how long the daemon works on after a signal while /readyz is already
	// false. Default 0.
	ShutdownDelay time.Duration `yaml:"shutdown_delay"`
}

// Validate returns problems of these keys. address is the daemon's default of OpsListen.
func (s Settings) Validate(address string, insecure bool) []Problem {
	problems := CheckListen("ops_listen", cmp.Or(s.OpsListen, address), insecure)
	if _, err := ParseLevel(s.LogLevel); err != nil {
		problems = append(problems, Problem{"log_level", err.Error()})
	}
	return problems
}

// Level returns the level of a valid flag, else that of these settings.
func (s Settings) Level(flag string) slog.Level {
	level, err := ParseLevel(cmp.Or(flag, s.LogLevel))
	if err != nil {
		return slog.LevelInfo
	}
	return level
}
