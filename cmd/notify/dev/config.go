package dev

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
)

// Config says how to run; the zero value of each field but BasePort and the
// writers is its default.
type Config struct {
	// DataDir keeps everything. Default: $XDG_DATA_HOME/notify/dev, else
	// ~/.local/share/notify/dev.
	DataDir string
	// Ephemeral uses a directory for this run alone, and removes it.
	Ephemeral bool
	// BasePort is the API's port; the others follow from it.
	BasePort int
	// Mysqld is the database server's binary. Default: the best one found.
	Mysqld string
	// Demo publishes sample trades to two groups, and serves a live board over them.
	Demo bool
	// LogLevel of what happens after the banner. Default warn.
	LogLevel slog.Level
	// JSON prints one object instead of the banner's text.
	JSON bool
	// Program is how the commands of the banner call this program. Default notify.
	Program string
	// Version is the program's.
	Version string
	// Out gets the banner, Err the logs. Required.
	Out, Err io.Writer
}

// directory makes the data directory and returns it, with what removes it at the end.
func (c Config) directory() (dir string, remove func() error, err error) {
	if c.Ephemeral {
		dir, err := os.MkdirTemp("", "notify-dev-")
		if err != nil {
			return "", nil, fmt.Errorf("ephemeral data directory: %w", err)
		}
		return dir, func() error { return os.RemoveAll(dir) }, nil
	}
	dir = c.DataDir
	if dir == "" {
		if dir, err = defaultDir(); err != nil {
			return "", nil, err
		}
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("data directory: %w; name one that can be written with --data-dir", err)
	}
	return dir, func() error { return nil }, nil
}

func defaultDir() (string, error) {
	if base := os.Getenv("XDG_DATA_HOME"); base != "" {
		return filepath.Join(base, "notify", "dev"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("data directory: %w; name one with --data-dir", err)
	}
	return filepath.Join(home, ".local", "share", "notify", "dev"), nil
}
