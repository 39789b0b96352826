package preflight

import (
	"fmt"
	"strings"
)

// Exit codes of a program that ends because of a problem.
const (
	codeFailed      = 1
	codeConfig      = 2
	codeDenied      = 5
	codeUnreachable = 6
)

// Problem is one thing that keeps a server from being a store, or an account from its work.
type Problem struct {
	// Code is the exit code of a program that ends because of it.
	Code int
	// Text is one line: what, where, how to mend it.
	Text string
}

func problemf(code int, format string, args ...any) Problem {
	return Problem{code, fmt.Sprintf(format, args...)}
}

// Report is what a check found.
type Report struct {
	// Problems keep the program from starting.
	Problems []Problem
	// Warnings do not; each is one line like a problem's.
	Warnings []string
}

func (r *Report) refuse(code int, format string, args ...any) {
	r.Problems = append(r.Problems, problemf(code, format, args...))
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// Err returns nil, or an *Error with all problems.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return &Error{r.Problems}
}

// Error is all problems of a report.
type Error struct{ Problems []Problem }

// Error is one line for one problem, else a head line and one line per problem.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].Text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the store is not usable yet: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.Text)
	}
	return b.String()
}

// ExitCode is that of the first problem.
func (e *Error) ExitCode() int { return e.Problems[0].Code }
