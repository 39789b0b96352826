package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// A number is one line of the report.
type number struct {
	what     string
	value    string
	want     string // empty: nothing is required
	missed   bool
	limit    string // what limits it
	runs     []string
	runsHead string
}

// A bound is what is required of a ratio; the zero bound is nothing.
type bound struct {
	text string
	met  func(float64) bool
}

func atLeast(x float64) bound {
	return bound{fmt.Sprintf("at least %g", x), func(v float64) bool { return v >= x }}
}

func atMost(x float64) bound {
	return bound{fmt.Sprintf("at most %g", x), func(v float64) bool { return v <= x }}
}

// compared is the number of a ratio: the median of the pairs.
func compared(what, unit string, pairs []pair, want bound) number {
	ratio := median(ratios(pairs))
	ours := median(column(pairs, func(p pair) float64 { return p.ours }))
	other := median(column(pairs, func(p pair) float64 { return p.other }))
	n := number{
		what: what, want: want.text, missed: want.met != nil && !want.met(ratio), runsHead: "pairs, " + unit,
		value: fmt.Sprintf("%.2f (%s / %s %s)", ratio, amount(ours), amount(other), unit),
	}
	for _, p := range pairs {
		n.runs = append(n.runs, fmt.Sprintf("%s / %s = %.2f", amount(p.ours), amount(p.other), p.ratio()))
	}
	return n
}

// distributed is the number of a delay: the medians of the runs' percentiles. most is the
// largest p99 allowed; 0: any.
func distributed(what string, runs []delay, most time.Duration, limit string) number {
	of := func(field func(delay) time.Duration) float64 {
		return median(column(runs, func(d delay) float64 { return milliseconds(field(d)) }))
	}
	p99 := of(func(d delay) time.Duration { return d.p99 })
	n := number{
		what: what, limit: limit, runsHead: "runs",
		value: fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", of(func(d delay) time.Duration { return d.p50 }), p99),
	}
	if most > 0 {
		n.want, n.missed = fmt.Sprintf("p99 at most %.0f ms", milliseconds(most)), p99 > milliseconds(most)
	}
	for _, d := range runs {
		n.runs = append(n.runs, d.String())
	}
	return n
}

// amount writes a value with about three digits.
func amount(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// verdict is met, MISSED, or empty when nothing is required.
func (n number) verdict() string {
	switch {
	case n.want == "":
		return ""
	case n.missed:
		return "MISSED"
	}
	return "met"
}

// report is what a run of this program found.
type report struct {
	machine machine
	options options
	numbers []number
}

// facts are the lines about machine and method.
func (r report) facts() []string {
	m := r.machine
	return []string{
		fmt.Sprintf("%s, %d cores of %s, memory %s, %s, load average %s at the start", m.date.Format("2006-01-02 15:04 UTC"), m.cores, m.processor, m.memory, m.system, m.load),
		fmt.Sprintf("%s, sync_binlog=1, innodb_flush_log_at_trx_commit=1, buffer pool and redo log %d MiB; a 4 KiB append and flush takes %.2f ms (p50), %.2f ms (p99)",
			m.database, r.options.pool>>20, milliseconds(m.flush.p50), milliseconds(m.flush.p99)),
		fmt.Sprintf("%s; bodies of %d bytes; unary calls by %s; medians of %d alternating pairs; runs of %s; everything on this machine",
			m.program, bodyBytes, map[string]string{callHTTP: "Connect over HTTP/1.1", callGRPC: "gRPC over HTTP/2"}[r.options.calls], r.options.pairs, r.options.window),
	}
}

// table writes the report for a terminal.
func (r report) table(out io.Writer) error {
	for _, line := range r.facts() {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NUMBER\tMEASURED\tREQUIRED\tVERDICT")
	for _, n := range r.numbers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.what, n.value, n.want, n.verdict())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, n := range r.numbers {
		if _, err := fmt.Fprintf(out, "%s: limited by %s\n", n.what, n.limit); err != nil {
			return err
		}
	}
	return nil
}

// markdown is the report for a file.
func (r report) markdown() string {
	var b strings.Builder
	for _, line := range r.facts() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n| number | measured | required | verdict | limited by |\n| --- | --- | --- | --- | --- |\n")
	for _, n := range r.numbers {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", n.what, n.value, n.want, n.verdict(), n.limit)
	}
	b.WriteByte('\n')
	for _, n := range r.numbers {
		fmt.Fprintf(&b, "- %s (%s): %s\n", n.what, n.runsHead, strings.Join(n.runs, "; "))
	}
	return b.String()
}
