package daemon

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// expansion matches ${env:NAME} and ${file:/path}.
var expansion = regexp.MustCompile(`\$\{(env|file):([^}]*)\}`)

// expand replaces the expansions in a text. It reports whether there were any; then the
// result may be a secret.
func expand(text string, env map[string]string) (result string, expanded bool, err error) {
	result = expansion.ReplaceAllStringFunc(text, func(match string) string {
		expanded = true
		parts := expansion.FindStringSubmatch(match)
		value, lookupErr := lookup(parts[1], parts[2], env)
		if lookupErr != nil && err == nil {
			err = lookupErr
		}
		return value
	})
	return result, expanded, err
}

func lookup(kind, name string, env map[string]string) (string, error) {
	if kind == "env" {
		value, found := env[name]
		if !found {
			return "", fmt.Errorf("environment variable %q is not set", name)
		}
		return value, nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(content), "\r\n"), nil
}
