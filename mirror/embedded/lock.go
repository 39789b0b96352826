package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dirLock keeps other processes out of a data directory. The kernel drops it when
// the process ends, however it ends.
type dirLock struct {
	file *os.File
}

// lockDir takes the lock of a directory. The error wraps ErrInUse and names the
// holder's process id when that is known.
func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w%s", ErrInUse, holder(f))
	}
	if err == nil {
		err = errors.Join(f.Truncate(0), writePID(f))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &dirLock{f}, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder is " (pid N)" by what the lock's holder wrote, or nothing.
func holder(f *os.File) string {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0) // an unreadable pid only makes the message shorter
	pid := strings.TrimSpace(string(b[:n]))
	if pid == "" {
		return ""
	}
	return " (pid " + pid + ")"
}

// release drops the lock. The file stays: removing it could let in two processes.
func (l *dirLock) release() error { return l.file.Close() }
