package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"notifymirror/notifyd/embedded"
)

// machine is what the numbers were measured on.
type machine struct {
	date      time.Time
	processor string
	cores     int
	memory    string
	system    string
	load      string // average of the last minute, before the start
	flush     delay  // of one page appended to a file and flushed
	database  string
	program   string
}

// describe looks at this machine, and at the disk that holds dir.
func describe(ctx context.Context, dir string, server embedded.Server) (machine, error) {
	flush, err := timeFlushes(ctx, filepath.Join(dir, "flush"))
	return machine{
		date:      time.Now().UTC(),
		processor: procField("/proc/cpuinfo", "model name"),
		cores:     runtime.NumCPU(),
		memory:    procField("/proc/meminfo", "MemTotal"),
		system:    runtime.GOOS + "/" + runtime.GOARCH + " " + firstLine("/proc/sys/kernel/osrelease"),
		load:      strings.SplitN(firstLine("/proc/loadavg"), " ", 2)[0],
		flush:     flush,
		database:  server.String(),
		program:   build(),
	}, err
}

// timeFlushes appends a page of 4 KiB again and again, and flushes each.
func timeFlushes(ctx context.Context, path string) (delay, error) {
	f, err := os.Create(path)
	if err != nil {
		return delay{}, err
	}
	defer f.Close()
	page, times := make([]byte, 4096), make([]time.Duration, 0, 200)
	for range cap(times) {
		if ctx.Err() != nil {
			return delay{}, ctx.Err()
		}
		if _, err := f.Write(page); err != nil {
			return delay{}, err
		}
		began := time.Now()
		if err := f.Sync(); err != nil {
			return delay{}, err
		}
		times = append(times, time.Since(began))
	}
	return delay{percentile(times, 0.5), percentile(times, 0.99), percentile(times, 1)}, nil
}

// procField is the value behind a name and a colon; "unknown" if there is none.
func procField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// build is the Go version, and the commit where the program was built with one.
func build() string {
	out := runtime.Version()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			out += fmt.Sprintf(", commit %.12s", s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			out += " with changes"
		}
	}
	return out
}
