package schema

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

var (
	//go:embed 001_store.sql.tmpl
	storeTemplate string
	//go:embed 002_settings.sql.tmpl
	settingsTemplate string
	//go:embed 003_retries.sql.tmpl
	retriesTemplate string
)

// Statements returns the DDL of version 1 of a store with the given number of shards, one
// statement each, in order. Each can be run again after it has succeeded. The error says that
// the number of shards is out of range.
func Statements(shards int) ([]string, error) { return statements(storeTemplate, shards) }

// SettingsStatements returns the DDL that makes version 2 of version 1, as Statements does.
// Each is an ALTER TABLE that adds one thing: run again, it fails with error 1060 or 1061,
// which say that the column or the key is there.
func SettingsStatements(shards int) ([]string, error) { return statements(settingsTemplate, shards) }

// RetriesStatements returns the DDL that makes version 3 of version 2, as SettingsStatements does.
func RetriesStatements(shards int) ([]string, error) { return statements(retriesTemplate, shards) }

func statements(text string, shards int) ([]string, error) {
	if err := CheckShards(shards); err != nil {
		return nil, err
	}
	tmpl, err := template.New("store").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("store schema: %w", err)
	}
	numbers := make([]string, shards)
	for i := range numbers {
		numbers[i] = fmt.Sprintf("%02d", i)
	}
	var out strings.Builder
	err = tmpl.Execute(&out, struct {
		Shards       int
		ShardNumbers []string
	}{shards, numbers})
	if err != nil {
		return nil, fmt.Errorf("store schema: %w", err)
	}
	return split(out.String()), nil
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
