package schema

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed 001_store.sql.tmpl
var storeTemplate string

// Statements returns the DDL of a new store with the given number of shards, one statement
// each, in order. Each can be run again after it has succeeded. The error says that the
// number of shards is out of range.
func Statements(shards int) ([]string, error) {
	if err := CheckShards(shards); err != nil {
		return nil, err
	}
	tmpl, err := template.New("store").Parse(storeTemplate)
	if err != nil {
		return nil, fmt.Errorf("store schema: %w", err)
	}
	numbers := make([]string, shards)
	for i := range numbers {
		numbers[i] = fmt.Sprintf("%02d", i)
	}
	var text strings.Builder
	err = tmpl.Execute(&text, struct {
		Shards       int
		ShardNumbers []string
	}{shards, numbers})
	if err != nil {
		return nil, fmt.Errorf("store schema: %w", err)
	}
	return split(text.String()), nil
}

// CheckShards returns an error that says the bounds when shards is not a possible number.
func CheckShards(shards int) error {
	if shards < 1 || shards > MaxShards {
		return fmt.Errorf("number of shards %d: must be 1 to %d", shards, MaxShards)
	}
	return nil
}

// split cuts the template's output into statements: comment lines go, and a line that ends
// in a semicolon ends a statement. The template keeps to that form.
func split(text string) []string {
	var statements []string
	var current []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\n")
		if line == "" || strings.HasPrefix(strings.TrimSpace(line), "--") {
			continue
		}
		rest, ends := strings.CutSuffix(line, ";")
		current = append(current, rest)
		if ends {
			statements = append(statements, strings.Join(current, "\n"))
			current = nil
		}
	}
	return statements
}
