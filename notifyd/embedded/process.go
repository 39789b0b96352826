package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one run of a child. It ends when done is closed; err is then set for good.
type process struct {
	pid  int
	done chan struct{}
	err  error
}

// spawn starts a child that ends with us. Its output goes to log, and it holds lock open.
// The goroutine owns the child from start to end on one thread, because the child gets its
// parent-death signal when that thread ends.
func spawn(path string, args []string, log, lock *os.File) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Env = append(os.Environ(), "TZ=UTC")
	cmd.SysProcAttr = childAttr()
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("database server: %w", err)
	}
	return p, nil
}

// signal sends sig to the child's whole process group; a child that has ended is left alone.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		// The only possible error is that the group has just ended.
		_ = syscall.Kill(-p.pid, sig)
	}
}

// kill ends the child at once and waits for it.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}
