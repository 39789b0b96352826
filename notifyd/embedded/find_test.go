package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFlavorAndVersionAreReadFromWhatServersPrint(t *testing.T) {
	for out, want := range map[string]Server{
		"mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)":                         {"", MariaDB, Version{10, 11, 19}},
		"/usr/sbin/mysqld  Ver 10.6.18-MariaDB-0ubuntu0.22.04.1 for debian-linux-gnu on x86_64 (Ubuntu 22.04)":        {"", MariaDB, Version{10, 6, 18}},
		"/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))":                                                {"", MySQL, Version{9, 7, 4}},
		"/usr/sbin/mysqld  Ver 8.0.39-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))":                                {"", MySQL, Version{8, 0, 39}},
		"/usr/local/mysql/bin/mysqld  Ver 8.4.2 for macos14 on arm64 (MySQL Community Server - GPL)":                  {"", MySQL, Version{8, 4, 2}},
		"mysqld  Ver 11.4.3-MariaDB-ubu2404-log for debian-linux-gnu on x86_64 (mariadb.org binary distribution)\n\n": {"", MariaDB, Version{11, 4, 3}},
	} {
		got, ok := parseVersion(out)
		if !ok || got != want {
			t.Errorf("%q: %v, %v", out, got, ok)
		}
	}
	if _, ok := parseVersion("postgres (PostgreSQL) 15.18"); ok {
		t.Error("another program was taken for a server")
	}
}

func TestMySQLIsPreferredThenTheLaterRelease(t *testing.T) {
	order := []Server{
		{"a", MariaDB, Version{10, 6, 18}},
		{"b", MariaDB, Version{10, 11, 2}},
		{"c", MariaDB, Version{10, 11, 19}},
		{"d", MariaDB, Version{11, 4, 3}},
		{"e", MySQL, Version{8, 0, 39}},
		{"f", MySQL, Version{9, 7, 4}},
	}
	mixed := []Server{order[3], order[5], order[0], order[4], order[2], order[1]}
	slices.SortFunc(mixed, compare)
	if !slices.Equal(mixed, order) {
		t.Errorf("got %v", mixed)
	}
}

// pretend makes a program that prints a version, as servers do.
func pretend(t *testing.T, dir, name, version string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\necho 'x  Ver %s for Linux'\n", version)), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAServerThatIsTooOldIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"5.7.44", "10.5.29-MariaDB"} {
		_, err := Find(pretend(t, dir, "mysqld", version))
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "too old") {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestAnExplicitPathWinsOverTheEnvironmentAndThatOverASearch(t *testing.T) {
	dir := t.TempDir()
	first, second := pretend(t, dir, "first", "9.9.9"), pretend(t, dir, "second", "10.99.0-MariaDB")
	t.Setenv("PATH", t.TempDir()+":"+dir)
	searched := pretend(t, dir, "mysqld", "99.0.0")
	for _, c := range []struct{ path, env, want string }{
		{first, second, first},
		{"", second, second},
		{"", "", searched},
	} {
		t.Setenv(EnvServer, c.env)
		got, err := Find(c.path)
		if err != nil || got.Path != c.want {
			t.Errorf("path %q, %s=%q: %v, %v", c.path, EnvServer, c.env, got, err)
		}
	}
}

func TestAMissingServerNamesTheCommandThatInstallsOne(t *testing.T) {
	_, err := Find(filepath.Join(t.TempDir(), "mysqld"))
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("a wrong path: %v", err)
	}
	_, err = pick(nil, 1000)
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "sudo apt-get install mariadb-server") {
		t.Errorf("nothing found: %v", err)
	}
	_, err = pick([]string{pretend(t, t.TempDir(), "mysqld", "5.7.44")}, 0)
	if !errors.Is(err, ErrNotFound) || !strings.HasSuffix(err.Error(), " apt-get install mariadb-server") {
		t.Errorf("nothing recent found: %v", err)
	}
}
