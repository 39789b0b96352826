package preflight

import (
	"fmt"
	"strings"
)

type serverKind int

const (
	unknownServer serverKind = iota
	mysqlServer
	mariaDBServer
)

// flavor is a server's kind and release series, read from VERSION().
type flavor struct {
	kind         serverKind
	major, minor int
}

// parseFlavor reads texts like 8.4.3, 8.0.35-27 and 10.11.19-MariaDB-0+deb12u1. Servers that
// only speak the protocol are unknown.
func parseFlavor(version string) flavor {
	var f flavor
	if _, err := fmt.Sscanf(version, "%d.%d", &f.major, &f.minor); err != nil {
		return flavor{}
	}
	lower := strings.ToLower(version)
	switch {
	case strings.Contains(lower, "mariadb"):
		f.kind = mariaDBServer
	case strings.Contains(lower, "tidb"), strings.Contains(lower, "vitess"), strings.Contains(lower, "oceanbase"):
		return flavor{}
	default:
		f.kind = mysqlServer
	}
	return f
}

func (f flavor) before(major, minor int) bool {
	return f.major < major || f.major == major && f.minor < minor
}

// supported reports whether a store can be kept by it.
func (f flavor) supported() bool {
	switch f.kind {
	case mysqlServer:
		return !f.before(8, 0)
	case mariaDBServer:
		return !f.before(10, 6)
	}
	return false
}
