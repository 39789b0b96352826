package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// list is the result of a listing command in all three formats.
type list struct {
	name    string   // key of the array in JSON
	columns []string // heads of the table
	rows    [][]string
	items   []any  // as JSON, one for each row
	next    string // where a list that stopped early goes on
}

func (l *list) add(item any, cells ...string) {
	l.items = append(l.items, item)
	l.rows = append(l.rows, cells)
}

// print writes the list. In text it is a table on a terminal, and lines of cells separated
// by tabs elsewhere; that there is nothing is told beside it.
func (a *app) print(l list) error {
	switch a.format {
	case "json":
		if l.items == nil {
			l.items = []any{}
		}
		out := map[string]any{l.name: l.items, "truncated": l.next != ""}
		if l.next != "" {
			out["next"] = l.next
		}
		return a.printJSON(out)
	case "jsonl":
		for _, item := range l.items {
			if err := a.printJSON(item); err != nil {
				return err
			}
		}
		if l.next != "" {
			return a.printJSON(map[string]any{"truncated": true, "next": l.next})
		}
		return nil
	}
	if len(l.rows) == 0 {
		a.say("no %s", strings.ReplaceAll(l.name, "_", " "))
		return nil
	}
	if err := a.printRows(l.columns, l.rows); err != nil {
		return err
	}
	if l.next != "" {
		a.say("… stopped at %d, continue with --after %s", len(l.rows), l.next)
	}
	return nil
}

func (a *app) printRows(columns []string, rows [][]string) error {
	if !terminal(a.out) {
		for _, r := range rows {
			if _, err := fmt.Fprintln(a.out, strings.Join(r, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if len(columns) > 0 {
		fmt.Fprintln(w, strings.ToUpper(strings.Join(columns, "\t")))
	}
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// printOne writes one thing: pairs of name and value in text, item in JSON.
func (a *app) printOne(item any, pairs ...string) error {
	if a.format != "text" {
		return a.printJSON(item)
	}
	var rows [][]string
	for i := 0; i+1 < len(pairs); i += 2 {
		rows = append(rows, pairs[i:i+2])
	}
	return a.printRows(nil, rows)
}

// printJSON writes v: indented for -o json, on one line for -o jsonl.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	if a.format == "json" {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// printLine writes v on one line, whatever the format: a stream is never one
// JSON document.
func (a *app) printLine(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// micros shows an API time, "-" for none.
func micros(us int64) string {
	if us == 0 {
		return "-"
	}
	return time.UnixMicro(us).UTC().Format(time.RFC3339)
}
