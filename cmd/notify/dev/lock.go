package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrRunning is returned by Run when another process uses the data directory.
var ErrRunning = errors.New("already running")

// lock takes the data directory for this process. The kernel drops it when the
// process ends, however it ends; the file stays, and holds the owner's pid.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w; name one that can be written with --data-dir", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		pid, _ := os.ReadFile(path) // without a pid the text is only shorter
		_ = f.Close()
		return nil, fmt.Errorf("%w: notify dev with pid %s uses %s; stop it (kill %[2]s), or start another with --data-dir and --base-port",
			ErrRunning, strings.TrimSpace(string(pid)), dir)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
