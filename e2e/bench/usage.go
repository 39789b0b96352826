package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc.
const tick = time.Second / 100

// usage is the processor time that processes took, by name, and the whole machine.
type usage struct {
	wall    time.Duration
	by      map[string]time.Duration
	machine time.Duration
}

// A meter reads what processes have used. Where there is no /proc it reads nothing.
type meter struct {
	pids  map[string]int
	began time.Time
	at    usage
}

// newMeter begins to measure: this process as "load", and the others.
func newMeter(pids map[string]int) *meter {
	all := maps.Clone(pids)
	all["load"] = os.Getpid()
	m := &meter{pids: all, began: time.Now()}
	m.at = m.read()
	return m
}

func (m *meter) read() usage {
	u := usage{by: map[string]time.Duration{}, machine: machineTime()}
	for name, pid := range m.pids {
		u.by[name] = processTime(pid)
	}
	return u
}

// used is what was used since the meter began.
func (m *meter) used() usage {
	now := m.read()
	for name := range now.by {
		now.by[name] -= m.at.by[name]
	}
	now.machine -= m.at.machine
	now.wall = time.Since(m.began)
	return now
}

// add sums two usages up.
func (u usage) add(v usage) usage {
	sum := usage{wall: u.wall + v.wall, machine: u.machine + v.machine, by: maps.Clone(u.by)}
	if sum.by == nil {
		sum.by = map[string]time.Duration{}
	}
	for name, d := range v.by {
		sum.by[name] += d
	}
	return sum
}

// each is how many microseconds of processors a process took for each of n.
func (u usage) each(name string, n int) float64 { return u.by[name].Seconds() * 1e6 / float64(n) }

// limit says what limits a rate: the processors when hardly anything of them is left, else
// waiting, and who used how many of them.
func (u usage) limit() string {
	if u.wall == 0 || u.machine == 0 {
		return "unknown: processor times cannot be read here"
	}
	cores := func(d time.Duration) float64 { return d.Seconds() / u.wall.Seconds() }
	busy, all := cores(u.machine), runtime.NumCPU()
	what := "waiting, for the disk's flushes and for one another"
	if busy > 0.85*float64(all) {
		what = "processors"
	}
	names := slices.SortedFunc(maps.Keys(u.by), func(a, b string) int {
		return cmp.Or(cmp.Compare(u.by[b], u.by[a]), cmp.Compare(a, b))
	})
	rest := u.machine
	var parts []string
	for _, name := range names {
		rest -= u.by[name]
		parts = append(parts, fmt.Sprintf("%s %.2f", name, cores(u.by[name])))
	}
	parts = append(parts, fmt.Sprintf("others %.2f", max(0, cores(rest))))
	return fmt.Sprintf("%s; %.2f of %d cores busy: %s", what, busy, all, strings.Join(parts, ", "))
}

// processTime is user and system time of a process; 0 if unknown.
func processTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold anything; utime and stime are the 12th and 13th behind it.
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text)[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0
	}
	return ticks(fields[11]) + ticks(fields[12])
}

// machineTime is the time that all processors were not idle; 0 if unknown.
func machineTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0
	}
	var sum time.Duration
	for i, f := range fields[1:9] {
		if i != 3 && i != 4 { // idle, iowait
			sum += ticks(f)
		}
	}
	return sum
}

func ticks(text string) time.Duration {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}
