package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockDir takes the directory for this process. The returned file is passed on to the
// children: the lock is free again when all who hold it have ended. A lock whose owner is
// dead is waited for until ctx ends, since the owner's children are ending; a lock whose
// owner lives is ErrInUse at once.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database directory %s: %w", dir, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if pid := ownerPID(path); pid != 0 && alive(pid) {
			return nil, errors.Join(fmt.Errorf("%w: %s is used by process %d; stop it or use another directory", ErrInUse, dir, pid), f.Close())
		}
		if waitErr := pause(ctx, 20*time.Millisecond); waitErr != nil {
			return nil, errors.Join(fmt.Errorf("%w: %s is held by a database server whose parent is dead: %w", ErrInUse, dir, waitErr), f.Close())
		}
	}
	if err := writeOwner(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

func writeOwner(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// ownerPID reads the pid in a lock file; 0 while its owner is just writing it.
func ownerPID(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
