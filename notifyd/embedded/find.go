package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EnvServer names the environment variable that Find reads: the path of a server binary.
const EnvServer = "NOTIFY_MYSQLD"

// Flavor is the kind of server.
type Flavor string

// The flavors.
const (
	MySQL   Flavor = "MySQL"
	MariaDB Flavor = "MariaDB"
)

// Version is a release; only the first three numbers are kept.
type Version struct{ Major, Minor, Patch int }

// String is the form 10.11.19.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// sameOrLater tells whether v belongs to the release series of w or to a later one.
func (v Version) sameOrLater(w Version) bool {
	return v.Major > w.Major || v.Major == w.Major && v.Minor >= w.Minor
}

// Server is a server binary found on this machine.
type Server struct {
	Path    string
	Flavor  Flavor
	Version Version
}

// String is the form "MariaDB 10.11.19".
func (s Server) String() string { return string(s.Flavor) + " " + s.Version.String() }

// supported tells whether the server is recent enough: MySQL 8.0 or MariaDB 10.6.
func (s Server) supported() bool {
	if s.Flavor == MySQL {
		return s.Version.sameOrLater(Version{Major: 8})
	}
	return s.Version.sameOrLater(Version{Major: 10, Minor: 6})
}

// Find returns the server at path. If path is empty it is that of the environment variable
// NOTIFY_MYSQLD; if that is empty too, PATH and the usual directories are searched, and
// MySQL is preferred to MariaDB. The two are told apart by what --version prints: on Debian
// mysqld is MariaDB. When there is none, or none recent enough, the error is ErrNotFound and
// names the command that installs one.
func Find(path string) (Server, error) {
	if path == "" {
		path = os.Getenv(EnvServer)
	}
	if path != "" {
		s, err := ask(path)
		if err != nil {
			return Server{}, err
		}
		if !s.supported() {
			return Server{}, fmt.Errorf("%w: %s is %s, which is too old; MySQL 8.0 or MariaDB 10.6 is needed", ErrNotFound, path, s)
		}
		return s, nil
	}
	return pick(candidates(filepath.SplitList(os.Getenv("PATH"))), os.Geteuid())
}

// pick returns the best of the binaries.
func pick(paths []string, uid int) (Server, error) {
	var found []Server
	for _, p := range paths {
		if s, err := ask(p); err == nil && s.supported() {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return Server{}, fmt.Errorf("%w: MySQL 8.0 or MariaDB 10.6 is needed; on Debian and Ubuntu type: %s",
			ErrNotFound, installCommand(uid))
	}
	return slices.MaxFunc(found, compare), nil
}

// compare orders servers by preference: MySQL after MariaDB, then by release.
func compare(a, b Server) int {
	if a.Flavor != b.Flavor {
		if a.Flavor == MySQL {
			return 1
		}
		return -1
	}
	if a.Version.sameOrLater(b.Version) {
		if b.Version.sameOrLater(a.Version) {
			return a.Version.Patch - b.Version.Patch
		}
		return 1
	}
	return -1
}

// candidates lists the server binaries in dirs and in the usual places, each file once.
func candidates(dirs []string) []string {
	dirs = append(slices.Clone(dirs), "/usr/sbin", "/usr/local/sbin", "/usr/libexec",
		"/usr/local/mysql/bin", "/opt/mysql/bin", "/usr/local/opt/mysql/bin", "/opt/homebrew/bin")
	var paths []string
	seen := map[string]bool{}
	for _, dir := range dirs {
		for _, name := range []string{"mysqld", "mariadbd"} {
			path := filepath.Join(dir, name)
			real, err := filepath.EvalSymlinks(path)
			if err != nil || seen[real] {
				continue
			}
			seen[real] = true
			paths = append(paths, path)
		}
	}
	return paths
}

// ask runs the binary to learn what it is.
func ask(path string) (Server, error) {
	out, err := exec.Command(path, "--no-defaults", "--version").Output()
	if err != nil {
		return Server{}, fmt.Errorf("%w: %s --version: %w", ErrNotFound, path, err)
	}
	s, ok := parseVersion(string(out))
	if !ok {
		return Server{}, fmt.Errorf("%w: %s is neither MySQL nor MariaDB: it says %q", ErrNotFound, path, strings.TrimSpace(string(out)))
	}
	s.Path = path
	return s, nil
}

var versionNumbers = regexp.MustCompile(`\bVer (\d+)\.(\d+)\.(\d+)`)

// parseVersion reads what --version prints, such as
//
//	mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)
//	/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))
func parseVersion(out string) (Server, bool) {
	m := versionNumbers.FindStringSubmatch(out)
	if m == nil {
		return Server{}, false
	}
	s := Server{Flavor: MySQL}
	if strings.Contains(out, "MariaDB") {
		s.Flavor = MariaDB
	}
	for i, n := range []*int{&s.Version.Major, &s.Version.Minor, &s.Version.Patch} {
		v, err := strconv.Atoi(m[i+1])
		if err != nil {
			return Server{}, false
		}
		*n = v
	}
	return s, true
}

// installCommand is what a person types to get a server.
func installCommand(uid int) string {
	if uid == 0 {
		return "apt-get install mariadb-server"
	}
	return "sudo apt-get install mariadb-server"
}
