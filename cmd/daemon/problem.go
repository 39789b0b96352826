package daemon

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	// Where is file:line:column, or the variable's name, or the key's path.
	Where string
	// Text says what is wrong and how to mend it.
	Text string
}

// String is one line.
func (p Problem) String() string { return p.Where + ": " + p.Text }

// ConfigError is every problem of a configuration at once. Its exit code is ExitUsage.
type ConfigError struct{ Problems []Problem }

// Error is one line for one problem, else a head line and one line per problem.
func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// ExitCode is ExitUsage.
func (e *ConfigError) ExitCode() int { return ExitUsage }

// Validator is a configuration that can find what its types cannot say.
type Validator interface {
	// Validate returns problems by the paths of their keys; it changes nothing.
	Validate() []Problem
}

// ProblemsOf returns the errors that errors.Join has joined in err, each of the form
// "key: what is wrong".
func ProblemsOf(err error) []Problem {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var problems []Problem
		for _, one := range joined.Unwrap() {
			problems = append(problems, ProblemsOf(one)...)
		}
		return problems
	}
	key, text, found := strings.Cut(err.Error(), ": ")
	if !found {
		key, text = "configuration", key
	}
	return []Problem{{key, text}}
}
