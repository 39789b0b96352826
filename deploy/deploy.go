// Package deploy holds the reference files of an installation, so that programs can print
// them and tests can hold them against the code: notifyd.yaml, canald.yaml and
// boards.yaml with every configuration key, my.cnf and grants.sql for the store's server, and README.md for
// operators.
package deploy

import (
	"embed"
	"regexp"
	"slices"
	"strings"
)

// Files are the reference files.
//
//go:embed notifyd.yaml canald.yaml boards.yaml my.cnf grants.sql README.md
var Files embed.FS

// key matches a line of a reference configuration that holds a key.
var key = regexp.MustCompile(`^( *)([a-z_]+):`)

// Undocumented returns the configuration keys that a reference configuration does not hold,
// or holds without a comment above that says "Default" or "Required". A * in a key stands
// for a name that the user gives.
func Undocumented(reference string, keys []string) []string {
	documented := map[string]bool{}
	var path []string
	comment := ""
	for line := range strings.Lines(reference) {
		match := key.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "#"):
			comment += line
			continue
		case match == nil:
			comment = ""
			continue
		}
		path = append(path[:min(len(match[1])/2, len(path))], match[2])
		documented[strings.Join(path, ".")] = strings.Contains(comment, "Default") || strings.Contains(comment, "Required")
		comment = ""
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		// The reference names its one store a.
		return documented[strings.ReplaceAll(k, "*", "a")]
	})
}
