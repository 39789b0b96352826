package canal

import (
	"bytes"
	"strings"
)

// A statement is what a Query event means for the grammar of the stream.
type statement uint8

const (
	otherStatement statement = iota // DDL and the like: no rows of ours
	emptyStatement                  // only a comment
	beginStatement
	commitStatement
	rollbackStatement
	savepointStatement  // with a name
	rollbackToStatement // with a name
	xaStartStatement    // begins a group
	xaEndStatement      // inside a group
	xaDecisionStatement // XA COMMIT, XA ROLLBACK: a group of its own
	dataStatement       // may change rows: INSERT and all that is not known to be harmless
)

// harmless are the first words of statements that are always logged as text and
// insert no rows into existing tables.
var harmless = [...]string{
	"ALTER", "ANALYZE", "CHANGE", "CHECK", "CREATE", "DROP", "FLUSH", "GRANT", "IMPORT", "INSTALL", "KILL", "LOCK",
	"OPTIMIZE", "PURGE", "RELEASE", "RENAME", "REPAIR", "RESET", "REVOKE", "SHUTDOWN", "START", "STOP", "TRUNCATE",
	"UNINSTALL", "UNLOCK", "USE",
}

// readStatement classifies the text of a Query event. Name is that of a savepoint.
func readStatement(query []byte) (kind statement, name string) {
	w, rest := firstWord(query)
	switch w {
	case "":
		if len(bytes.TrimSpace(rest)) == 0 {
			return emptyStatement, ""
		}
		return dataStatement, ""
	case "BEGIN":
		return beginStatement, ""
	case "COMMIT":
		return commitStatement, ""
	case "ROLLBACK":
		to, rest := firstWord(rest)
		if to != "TO" {
			return rollbackStatement, ""
		}
		if s, after := firstWord(rest); s == "SAVEPOINT" {
			if n := savepointName(after); n != "" {
				return rollbackToStatement, n
			}
		}
		return rollbackToStatement, savepointName(rest)
	case "SAVEPOINT":
		return savepointStatement, savepointName(rest)
	case "XA":
		switch w, _ := firstWord(rest); w {
		case "START", "BEGIN":
			return xaStartStatement, ""
		case "END":
			return xaEndStatement, ""
		case "COMMIT", "ROLLBACK":
			return xaDecisionStatement, ""
		}
		return dataStatement, ""
	case "SET":
		// MariaDB: SET STATEMENT variable=value FOR INSERT ...
		if w, _ := firstWord(rest); w == "STATEMENT" {
			return dataStatement, ""
		}
		return otherStatement, ""
	}
	for _, h := range harmless {
		if w == h {
			return otherStatement, ""
		}
	}
	return dataStatement, ""
}

// firstWord skips white space and comments and gives the first word in capitals.
// A versioned comment (/*!50000 ... */) is text that is executed, so only its
// opening is skipped.
func firstWord(q []byte) (word string, rest []byte) {
	for {
		q = bytes.TrimLeft(q, " \t\r\n\f\v\x00;(")
		switch {
		case bytes.HasPrefix(q, []byte("/*!")), bytes.HasPrefix(q, []byte("/*M!")):
			_, q, _ = bytes.Cut(q, []byte("!"))
			q = bytes.TrimLeft(q, "0123456789")
		case bytes.HasPrefix(q, []byte("/*")):
			_, q, _ = bytes.Cut(q[2:], []byte("*/"))
		case bytes.HasPrefix(q, []byte("*/")):
			q = q[2:]
		case bytes.HasPrefix(q, []byte("#")), bytes.HasPrefix(q, []byte("-- ")):
			_, q, _ = bytes.Cut(q, []byte("\n"))
		default:
			n := 0
			for n < len(q) && isWordByte(q[n]) {
				n++
			}
			return strings.ToUpper(string(q[:n])), q[n:]
		}
	}
}

func isWordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 ||
		'0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// savepointName reads an identifier; names differ neither by case nor by quotes.
func savepointName(q []byte) string {
	q = bytes.TrimSpace(bytes.TrimRight(q, "; \t\r\n"))
	if n := len(q); n >= 2 && q[0] == '`' && q[n-1] == '`' {
		q = bytes.ReplaceAll(q[1:n-1], []byte("``"), []byte("`"))
	}
	return strings.ToLower(string(q))
}

// mentions reports whether the text holds name as a word of its own, in any case.
func mentions(query []byte, name string) bool {
	q, n := bytes.ToLower(query), []byte(strings.ToLower(name))
	for from := 0; ; {
		i := bytes.Index(q[from:], n)
		if i < 0 {
			return false
		}
		at, end := from+i, from+i+len(n)
		if (at == 0 || !isWordByte(q[at-1])) && (end == len(q) || !isWordByte(q[end])) {
			return true
		}
		from = at + 1
	}
}
