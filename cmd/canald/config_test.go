package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/cmd/daemon"
	"notifymirror/deploy"
	"notifymirror/mirror"
)

// reference writes the reference configuration with its secret in place.
func reference(t *testing.T) (path, text string) {
	t.Helper()
	content, err := deploy.Files.ReadFile("canald.yaml")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	text = strings.ReplaceAll(string(content), "/etc/notify", directory)
	path = filepath.Join(directory, "canald.yaml")
	for name, body := range map[string]string{path: text, filepath.Join(directory, "mirror.password"): "p@ss/word\n"} {
		if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path, text
}

func TestReferenceConfigurationLoadsAndHoldsEveryKey(t *testing.T) {
	path, text := reference(t)
	var c config
	if err := daemon.Load(path, nil, &c); err != nil {
		t.Fatal(err)
	}
	if got := c.Mirror.Stores["a"].DSN; got != "notify_mirror:p@ss/word@tcp(127.0.0.1:3306)/notify" {
		t.Errorf("dsn: %s", got)
	}
	keys := daemon.Keys(&c)
	if missing := deploy.Undocumented(text, keys); len(missing) > 0 {
		t.Errorf("keys without a description: %q", missing)
	}
}

func TestProblemsOfTheMirrorAreReportedByKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "canald.yaml")
	err := os.WriteFile(path, []byte("stores: {a: {dsn: 'root:secret/x'}}\npartitions: 5000\nops_listen: 0.0.0.0:1\nlinger: 5\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = load(daemon.Flags{Config: path})
	if err == nil {
		t.Fatal("no problems")
	}
	for _, says := range []string{path + ":4:9: linger:", "ops_listen: ", "stores.a.dsn: ", "kafka.brokers: ", "partitions: 5000"} {
		if !strings.Contains(err.Error(), "\n  "+says) {
			t.Errorf("no line %q in\n%s", says, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is shown:\n%s", err)
	}
}

var metricName = regexp.MustCompile(`fqName: "([^"]+)"`)

func TestEveryMetricIsDocumented(t *testing.T) {
	path, _ := reference(t)
	var c config
	if err := daemon.Load(path, nil, &c); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	if _, err := mirror.New(c.Mirror, "a", mirror.Deps{Logger: slog.New(slog.DiscardHandler), Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	readme, err := deploy.Files.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 1000)
	registry.Describe(descriptions)
	close(descriptions)
	if len(descriptions) == 0 {
		t.Error("no metrics")
	}
	for d := range descriptions {
		name := metricName.FindStringSubmatch(d.String())[1]
		if !strings.Contains(string(readme), "| `"+name+"` |") {
			t.Errorf("metric %s is not in the README", name)
		}
	}
}
