package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/cmd/daemon"
	"notifymirror/deploy"
	"notifymirror/stream/board"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "boards.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReferenceOfBoardsLoadsAndHoldsEveryKeyAndMetric(t *testing.T) {
	text, err := deploy.Files.ReadFile("boards.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, string(text))
	var c boardConfig
	if err := daemon.Load(path, nil, &c); err != nil {
		t.Fatal(err)
	}
	if missing := deploy.Undocumented(string(text), daemon.Keys(&c)); len(missing) > 0 {
		t.Errorf("keys without a description: %q", missing)
	}
	if r := notify(t, "", "board", "--config", path, "--check"); r.code != 0 || r.err != "the configuration is good\n" {
		t.Errorf("--check: %+v", r)
	}
	registry := prometheus.NewPedanticRegistry()
	if _, err := board.New(c.Config, board.Deps{Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	readme, err := deploy.Files.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 100)
	registry.Describe(descriptions)
	close(descriptions)
	if len(descriptions) == 0 {
		t.Error("no metrics")
	}
	for d := range descriptions {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]
		if !strings.Contains(string(readme), "| `"+name+"` |") {
			t.Errorf("metric %s is not in the README", name)
		}
	}
}

// What is wrong with a file of boards is said in one line each, with its place.
func TestWrongBoardsAreSaidByLine(t *testing.T) {
	const head = "kafka: {brokers: ['127.0.0.1:9']}\nboards:\n  a:\n    topic: t\n"
	for _, c := range []struct{ content, says string }{
		{head + "    windows: 5\n", `boards.yaml:5:5: unknown key "boards.a.windows"`},
		{head + "    filter: headers.x ==\n", "boards.yaml:5:13: boards.a.filter: \"headers.x ==\": line 1, column"},
		{head + "    filter: nothing == 1\n", "undeclared reference to 'nothing'"},
		{head + "    bars: [key, body]\n", "boards.yaml:5:17: boards.a.bars.1: \"body\": not a field"},
		{head + "    since: yesterday\n", "boards.yaml:5:12: boards.a.since: \"yesterday\": want oldest, hour, day"},
		{head + "    decimals: 2\n", "boards.a.amount: is missing"},
		{head + "    curve: 5\n", "boards.yaml:5:12: boards.a.curve: \"5\": not a duration"},
		{"kafka: {brokers: ['127.0.0.1:9']}\n", "boards: none is given"},
		{"boards: {a: {topic: t}}\n", "kafka.brokers: none is given"},
		{head + "listen: 0.0.0.0:7780\n", "is not loopback"},
		{"boards: [\n", "boards.yaml:"},
	} {
		r := notify(t, "", "board", "--config", file(t, c.content), "--check")
		if r.code != 2 || !strings.Contains(r.err, c.says) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s\nexit %d, %q; want exit 2 and one line with %q", c.content, r.code, r.err, c.says)
		}
	}
	for _, args := range [][]string{{"board"}, {"board", "--config", "/nonexistent"}, {"board", "--config", file(t, head), "--listen", "0.0.0.0:7780"}} {
		if r := notify(t, "", args...); r.code != 2 || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: exit %d, %q", args, r.code, r.err)
		}
	}
}
