// Package finding is the form in which a check says what is wrong with a server, an account,
// Kafka, a clock or a disk: how much it matters, why, and the statement that mends it.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity is how much a finding matters.
type Severity string

const (
	// Note is good to know; nothing is wrong.
	Note Severity = "note"
	// Warning works, and may lose something or fail one day.
	Warning Severity = "warning"
	// Error does not work.
	Error Severity = "error"
)

// rank orders severities, the worst first.
func (s Severity) rank() int {
	return slices.Index([]Severity{Error, Warning, Note}, s)
}

// Mend says how to put a finding right. SQL or Shell is set, or neither where only a person
// can tell what to do.
type Mend struct {
	// How is what to do, in words; it stands before the statements.
	How string `json:"how"`
	// SQL are statements for the server, one after another.
	SQL []string `json:"sql,omitempty"`
	// Shell are command lines.
	Shell []string `json:"shell,omitempty"`
	// Also is what belongs to it and cannot be typed: a line of a file, or a condition.
	Also string `json:"also,omitempty"`
}

// String is one line.
func (m Mend) String() string {
	text := m.How
	if lines := slices.Concat(m.SQL, m.Shell); len(lines) > 0 {
		text += ": " + strings.Join(lines, "; ")
	}
	if m.Also != "" {
		text += " " + m.Also
	}
	return text
}

// Finding is one thing that a check has to say.
type Finding struct {
	Severity Severity `json:"severity"`
	// Exit is the exit code of a program that ends because of it, with the severity Error.
	Exit int `json:"exit,omitempty"`
	// Subject is what is so, and where: "db:3306 has binlog_format=MIXED".
	Subject string `json:"subject"`
	// Why is what follows from it; empty where the subject says it.
	Why  string `json:"why,omitempty"`
	Mend Mend   `json:"mend"`
}

// String is one line: subject, why, mend.
func (f Finding) String() string {
	text := f.Subject
	if f.Why != "" {
		text += ", " + f.Why
	}
	return text + ": " + f.Mend.String()
}

// Sort puts the worst first and leaves the order otherwise.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
}

// Script is what mends the findings, to be read and then typed: SQL for the servers, then
// command lines, each below the finding that it is for. What cannot be typed is a comment.
// The two parts have comments of their language. It ends with a newline.
func Script(all []Finding) string {
	var sql, shell, hand strings.Builder
	for _, f := range all {
		switch {
		case len(f.Mend.SQL) > 0:
			part(&sql, "--", f, f.Mend.SQL, ";")
		case len(f.Mend.Shell) > 0:
			part(&shell, "#", f, f.Mend.Shell, "")
		default:
			fmt.Fprintf(&hand, "# %s\n", f)
		}
	}
	var b strings.Builder
	for _, p := range []struct{ head, body string }{
		{"-- On the store's server, as an administrator:\n", sql.String()},
		{"# On a machine with Kafka's tools:\n", shell.String()},
		{"# By hand:\n", hand.String()},
	} {
		if p.body != "" {
			b.WriteString(p.head + p.body)
		}
	}
	return b.String()
}

func part(b *strings.Builder, comment string, f Finding, lines []string, end string) {
	fmt.Fprintf(b, "%s %s\n", comment, f.Subject)
	if f.Why != "" {
		fmt.Fprintf(b, "%s %s\n", comment, f.Why)
	}
	if also := strings.TrimPrefix(f.Mend.Also, "and "); also != "" {
		fmt.Fprintf(b, "%s %s\n", comment, also)
	}
	for _, line := range lines {
		b.WriteString(line + end + "\n")
	}
}
