// Package child runs a program that must not outlive us: a database server, a broker, one of
// our own daemons under test.
//
// On Linux the kernel sends the child SIGKILL when we end, however we end. It does so when
// the thread that started the child ends, so that thread is locked to a goroutine that lives
// as long as the child. The child has a process group of its own: Ctrl-C in a terminal does
// not reach it, and signals sent here reach the programs that it started too.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Config says what to run.
type Config struct {
	// Path of the program, and its arguments without its name.
	Path string
	Args []string
	// Env is added to our environment.
	Env []string
	// Output gets what the program prints; nil discards it. Start's caller may close it when
	// Start has returned.
	Output *os.File
	// Hold are files that the child keeps open, such as a lock.
	Hold []*os.File
}

// Process is one run of a program.
type Process struct {
	path string
	pid  int
	done chan struct{}
	err  error // set before done is closed
}

// Start starts the program. It runs until it ends by itself, is told to, or we end.
func Start(c Config) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	if c.Output != nil {
		cmd.Stdout, cmd.Stderr = c.Output, c.Output
	}
	cmd.ExtraFiles = c.Hold
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.SysProcAttr = attributes()
	p := &Process{path: c.Path, done: make(chan struct{})}
	started := make(chan error)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	return p, nil
}

// run owns the child from start to end on one thread.
func (p *Process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
	close(p.done)
}

// PID is the child's process id.
func (p *Process) PID() int { return p.pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended tells whether the child has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Err waits for the child's end and returns how it ended: nil for exit code 0, else an
// *exec.ExitError.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends sig to the child's process group; a child that has ended is left alone.
func (p *Process) Signal(sig syscall.Signal) {
	if !p.Ended() {
		// The only error there can be is that the group has just ended.
		_ = syscall.Kill(-p.pid, sig)
	}
}

// Kill ends the child at once and waits for it. A stopped child ends too.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}
