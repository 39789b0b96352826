package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"time"
)

// envRole names the environment variable that makes this program a child.
const envRole = "NOTIFY_BENCH_ROLE"

// stopPatience is how long a child may take to end once it was asked to.
const stopPatience = 30 * time.Second

// brief is the first line of a child's standard input, as JSON.
type brief struct {
	DSN      string   `json:"dsn,omitempty"`
	Listen   string   `json:"listen,omitempty"` // host:port of a broker; empty: any free one
	GTID     string   `json:"gtid,omitempty"`
	Brokers  []string `json:"brokers,omitempty"`
	Dir      string   `json:"dir,omitempty"`
	Messages int      `json:"messages,omitempty"`
	Commits  int      `json:"commits,omitempty"` // source transactions that hold the messages
	Readers  int      `json:"readers,omitempty"` // connections, or consumers
	Profile  string   `json:"profile,omitempty"` // file for a CPU profile
}

// word is a line of a child's standard output, as JSON.
type word struct {
	Addr string `json:"addr,omitempty"`
	Done bool   `json:"done,omitempty"`
	Peak int    `json:"peak,omitempty"` // of the memory that was resident, bytes
}

// kid is a child as its parent sees it.
type kid struct {
	role  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	words chan word     // closed when the child's standard output ends
	ended chan struct{} // closed when the child is gone
	err   error         // valid once ended is closed
}

// spawn starts this program in a role.
func (b *bench) spawn(role string, br brief) (*kid, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	k := &kid{role: role, cmd: exec.Command(self), words: make(chan word, 16), ended: make(chan struct{})}
	k.cmd.Env = append(os.Environ(), envRole+"="+role)
	if b.verbose {
		k.cmd.Stderr = os.Stderr
	}
	if k.stdin, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := k.cmd.Start(); err != nil {
		return nil, err
	}
	go k.listen(out)
	if err := json.NewEncoder(k.stdin).Encode(br); err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return k, nil
}

func (k *kid) listen(out io.Reader) {
	defer close(k.ended)
	defer close(k.words)
	for lines := json.NewDecoder(out); ; {
		var w word
		if lines.Decode(&w) != nil {
			break
		}
		k.words <- w
	}
	k.err = k.cmd.Wait()
}

// next waits for the child's next word.
func (k *kid) next(ctx context.Context) (word, error) {
	select {
	case w, ok := <-k.words:
		if !ok {
			<-k.ended
			return w, fmt.Errorf("%s ended: %w; -v shows why", k.role, errors.Join(k.err, io.ErrUnexpectedEOF))
		}
		return w, nil
	case <-ctx.Done():
		return word{}, ctx.Err()
	}
}

// stop ends the child and waits for it.
func (k *kid) stop() error {
	k.stdin.Close()
	limit := time.NewTimer(stopPatience)
	defer limit.Stop()
	for {
		select {
		case <-k.words: // nobody else listens any more
		case <-k.ended:
			if k.err != nil {
				return fmt.Errorf("%s: %w; -v shows why", k.role, k.err)
			}
			return nil
		case <-limit.C:
			k.cmd.Process.Kill()
			<-k.ended
			return fmt.Errorf("%s: did not end within %s", k.role, stopPatience)
		}
	}
}

// childMain is this program as a child. It works until its standard input ends.
func childMain(role string) int {
	err := child(role)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", role, err)
		return 1
	}
	return 0
}

func child(role string) error {
	work, ok := roles()[role]
	if !ok {
		return fmt.Errorf("%s=%s: no such role", envRole, role)
	}
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("brief: %w", err)
	}
	var br brief
	if err := json.Unmarshal(line, &br); err != nil {
		return fmt.Errorf("brief: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	if br.Profile != "" {
		f, err := os.Create(br.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	out := json.NewEncoder(os.Stdout)
	return work(ctx, br, func(w word) error { return out.Encode(w) })
}
