package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

//go:embed *.sql.tmpl
var templates embed.FS

// Statements returns the DDL that makes a version, 1 to Latest, of the one before, for a store
// with the given number of shards, one statement each, in order. Each can be run again after it has
// succeeded: those of version 1 make a table if it is not there; those above add one thing with an
// ALTER TABLE, and then fail with error 1060 or 1061, which say that the column or the key is
// there. The error says that the number of shards, or the version, is out of range.
func Statements(version int64, shards int) ([]string, error) {
	if err := CheckShards(shards); err != nil {
		return nil, err
	}
	names, err := fs.Glob(templates, fmt.Sprintf("%03d_*.sql.tmpl", version))
	if err != nil || len(names) != 1 {
		return nil, fmt.Errorf("schema version %d: this program knows versions 1 to %d", version, Latest)
	}
	text, err := fs.ReadFile(templates, names[0])
	if err != nil {
		return nil, fmt.Errorf("store schema: %w", err)
	}
	tmpl, err := template.New("store").Parse(string(text))
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
