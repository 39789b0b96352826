package dbtest

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pattern of the shared servers' directories, in the directory for temporary files.
const pattern = "notify-dbtest-*"

// sweep removes what test binaries left that were killed: their servers are dead, their
// directories are not. A directory younger than minAge may be about to be used.
func sweep(temp string, minAge time.Duration, now time.Time) {
	dirs, err := filepath.Glob(filepath.Join(temp, pattern))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || now.Sub(info.ModTime()) < minAge || inUse(dir) {
			continue
		}
		// What cannot be removed belongs to someone else.
		_ = os.RemoveAll(dir)
	}
}

// inUse tells whether a process holds the directory's lock.
func inUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return !os.IsNotExist(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}
