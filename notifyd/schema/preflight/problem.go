package preflight

import (
	"fmt"
	"strings"

	"notifymirror/notifyd/finding"
)

// Exit codes of a program that ends because of a problem.
const (
	codeFailed      = 1
	codeConfig      = 2
	codeDenied      = 5
	codeUnreachable = 6
)

// Report is what a check found.
type Report struct {
	// Findings in the order in which they were found. Those with the severity Error keep the
	// program from starting.
	Findings []finding.Finding
}

// refuse adds an error.
func (r *Report) refuse(code int, subject, why string, mend finding.Mend) {
	r.Findings = append(r.Findings, finding.Finding{Severity: finding.Error, Exit: code, Subject: subject, Why: why, Mend: mend})
}

// warn adds what does not keep a program from starting.
func (r *Report) warn(subject, why string, mend finding.Mend) {
	r.add(finding.Warning, subject, why, mend)
}

func (r *Report) add(severity finding.Severity, subject, why string, mend finding.Mend) {
	r.Findings = append(r.Findings, finding.Finding{Severity: severity, Subject: subject, Why: why, Mend: mend})
}

// Problems keep the program from starting.
func (r *Report) Problems() []finding.Finding { return r.of(finding.Error) }

// Warnings do not; they are for the log.
func (r *Report) Warnings() []finding.Finding { return r.of(finding.Warning) }

func (r *Report) of(severity finding.Severity) (found []finding.Finding) {
	for _, f := range r.Findings {
		if f.Severity == severity {
			found = append(found, f)
		}
	}
	return found
}

// Err returns nil, or an *Error with all problems.
func (r *Report) Err() error {
	problems := r.Problems()
	if len(problems) == 0 {
		return nil
	}
	return &Error{problems}
}

// Error is all problems of a report.
type Error struct{ Problems []finding.Finding }

// Error is one line for one problem, else a head line and one line per problem.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the store is not usable yet: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// ExitCode is that of the first problem.
func (e *Error) ExitCode() int { return e.Problems[0].Exit }

// do is a Mend in words alone.
func do(format string, args ...any) finding.Mend {
	return finding.Mend{How: fmt.Sprintf(format, args...)}
}

// typed is a Mend by statements.
func typed(statements ...string) finding.Mend { return finding.Mend{How: "type", SQL: statements} }

// byAdmin is a Mend by statements that the account itself may not use.
func byAdmin(statements ...string) finding.Mend {
	return finding.Mend{How: "let an administrator type", SQL: statements}
}
