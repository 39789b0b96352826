package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type testStore struct {
	DSN   string `yaml:"dsn"`
	Count uint16 `yaml:"count"`
}

type testInner struct {
	OpsListen string        `yaml:"ops_listen"`
	Wait      time.Duration `yaml:"wait"`
}

type testConfig struct {
	Name     string               `yaml:"name"`
	Insecure bool                 `yaml:"insecure"`
	Rate     float64              `yaml:"rate"`
	Stores   map[string]testStore `yaml:"stores"`
	Brokers  []string             `yaml:"brokers"`
	Kafka    struct {
		ClientID string `yaml:"client_id"`
	} `yaml:"kafka"`
	Optional *testStore `yaml:"optional"`
	Inner    testInner  `yaml:",inline"`
	problems []Problem
}

func (c *testConfig) Validate() []Problem { return c.problems }

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEveryKindOfValueIsRead(t *testing.T) {
	path := write(t, `
name: 17            # text all the same
insecure: true
rate: 1.5
stores:
  a-b: {dsn: 'u:p@tcp(h:1)/s', count: 3}
  c: {}
brokers: [k1:9092, "k2:9092"]
kafka: {client_id: x}
optional:
  count: 7
ops_listen:
wait: 1m30s
`)
	var c testConfig
	c.Inner.OpsListen = "stays where the file says nothing"
	if err := Load(path, nil, &c); err != nil {
		t.Fatal(err)
	}
	want := testConfig{Name: "17", Insecure: true, Rate: 1.5,
		Stores:   map[string]testStore{"a-b": {"u:p@tcp(h:1)/s", 3}, "c": {}},
		Brokers:  []string{"k1:9092", "k2:9092"},
		Optional: &testStore{Count: 7},
		Inner:    testInner{"stays where the file says nothing", 90 * time.Second},
	}
	want.Kafka.ClientID = "x"
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestAllProblemsAreReportedAtOnceWithTheirPlaces(t *testing.T) {
	path := write(t, `nane: x
insecure: yes
stores:
  a: {dns: u@tcp(h)/s, count: 70000}
  b: [1]
dsn: x
brokers: one
kafka: {}
wait: 5
`)
	c := testConfig{problems: []Problem{{"stores", "a fault that only the whole shows"}}}
	err := Load(path, []string{"NOTIFY_RATE=fast"}, &c)
	problems := wantProblems(t, err)
	want := []string{
		path + `:1:1: unknown key "nane": the nearest known key is "name"`,
		path + `:2:11: insecure: "yes": must be true or false`,
		path + `:4:7: unknown key "stores.a.dns": the nearest known key is "stores.a.dsn"`,
		path + `:4:31: stores.a.count: "70000": the number is out of range: 0 to 65535`,
		path + `:5:6: stores.b: must hold keys, each on a line of its own: key: value`,
		path + `:6:1: unknown key "dsn": its place is stores.NAME.dsn`,
		path + `:7:10: brokers: must be a list: one item per line, each after a dash, or [a, b]`,
		path + `:9:7: wait: "5": not a duration: write a number and ms, s, m or h, such as 5s`,
		`environment NOTIFY_RATE: "fast": not a number`,
		`stores: a fault that only the whole shows`,
	}
	if !slices.Equal(problems, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(problems, "\n"), strings.Join(want, "\n"))
	}
	if ExitCode(err) != ExitUsage {
		t.Errorf("exit code %d", ExitCode(err))
	}
}

func TestFilesThatAreNoConfigurationAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"name: [":               ":1:7: ",
		"name: a\nname: b":      ":2:1: ",
		"- a":                   "the file: must hold keys",
		"name: a\n---\nname: b": "more than one YAML document",
		"name: &x a":            "anchors",
		"name: {a: b}":          "name: must be a single value",
		"\tname: a":             ":1:",
	} {
		problems := wantProblems(t, Load(write(t, text), nil, new(testConfig)))
		if len(problems) != 1 || !strings.Contains(problems[0], says) || strings.Contains(problems[0], "\n") {
			t.Errorf("%q: %q", text, problems)
		}
	}
	problems := wantProblems(t, Load("/nowhere/x.yaml", nil, new(testConfig)))
	if len(problems) != 1 || problems[0] != "--config: no such file or directory: /nowhere/x.yaml" {
		t.Errorf("missing file: %q", problems)
	}
	for _, text := range []string{"", "# nothing\n", "---\n"} {
		if err := Load(write(t, text), nil, new(testConfig)); err != nil {
			t.Errorf("empty file %q: %v", text, err)
		}
	}
}

func TestFileThatCannotBeReadIsTheOnlyProblem(t *testing.T) {
	for _, path := range []string{"/nowhere/x.yaml", write(t, "name: ["), write(t, "{}\n---\n{}")} {
		c := testConfig{problems: []Problem{{"stores", "missing"}}}
		if problems := wantProblems(t, Load(path, []string{"NOTIFY_RATE=fast"}, &c)); len(problems) != 1 {
			t.Errorf("%s: %q", path, problems)
		}
	}
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	path := write(t, "name: file\nstores: {a-b: {dsn: file, count: 1}}\nwait: 1s\n")
	var c testConfig
	err := Load(path, []string{
		"NOTIFY_NAME=env", "NOTIFY_STORES_A_B_DSN=env", "NOTIFY_STORES_NEW_ONE_DSN=made", "NOTIFY_KAFKA_CLIENT_ID=me",
		"NOTIFY_BROKERS=a:1, b:2", "NOTIFY_OPS_LISTEN=o", "NOTIFY_WAIT=2s", "NOTIFY_OPTIONAL_COUNT=4",
		"NOTIFY_SERVICE_HOST=10.0.0.1", "OTHER=x",
	}, &c)
	if err != nil {
		t.Fatal(err)
	}
	want := testConfig{Name: "env", Brokers: []string{"a:1", "b:2"}, Optional: &testStore{Count: 4},
		Stores: map[string]testStore{"a-b": {"env", 1}, "new_one": {DSN: "made"}},
		Inner:  testInner{"o", 2 * time.Second}}
	want.Kafka.ClientID = "me"
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestVariableWithATypingErrorIsNotIgnored(t *testing.T) {
	path := write(t, "stores: {a: {dsn: x}}\n")
	err := Load(path, []string{"NOTIFY_STORES_A_DNS=x", "NOTIFY_INSECUR=true", "NOTIFY_PORT=tcp://10.0.0.1:80", "NOTIFY_NAM=x", "NOTIFYD_INSECURE=1"}, new(testConfig))
	want := []string{
		"environment NOTIFY_INSECUR: unknown variable: the nearest known one is NOTIFY_INSECURE",
		"environment NOTIFY_STORES_A_DNS: unknown variable: the nearest known one is NOTIFY_STORES_A_DSN",
	}
	if problems := wantProblems(t, err); !slices.Equal(problems, want) {
		t.Errorf("%q", problems)
	}
}

func TestSecretsComeFromFilesAndVariablesAndAreNeverQuoted(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("p$ss${x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := write(t, "name: 'u:${file:"+secret+"}@h'\nbrokers: ['$HOME ${HOME}', '${env:A}']\nkafka: {client_id: '${env:B}'}\n")
	var c testConfig
	if err := Load(path, []string{"A=${env:B}", "B=b", "NOTIFY_OPS_LISTEN=${env:B}"}, &c); err != nil {
		t.Fatal(err)
	}
	if c.Name != "u:p$ss${x}@h" || c.Brokers[0] != "$HOME ${HOME}" || c.Brokers[1] != "${env:B}" || c.Inner.OpsListen != "b" {
		t.Errorf("%+v", c)
	}
	path = write(t, "wait: '${env:SECRET}'\nname: '${env:NONE}'\nbrokers: ['${file:/nowhere}']\n")
	problems := strings.Join(wantProblems(t, Load(path, []string{"SECRET=hunter2", "NOTIFY_RATE=${env:SECRET}"}, new(testConfig))), "\n")
	for _, says := range []string{":1:7: wait: not a duration", `variable "NONE" is not set`, "/nowhere: no such file", "NOTIFY_RATE: not a number"} {
		if !strings.Contains(problems, says) {
			t.Errorf("%q not in\n%s", says, problems)
		}
	}
	if strings.Contains(problems, "hunter2") {
		t.Errorf("the secret is shown:\n%s", problems)
	}
}

func TestKeysListsEveryValue(t *testing.T) {
	want := []string{"name", "insecure", "rate", "stores.*.dsn", "stores.*.count", "brokers", "kafka.client_id",
		"optional.dsn", "optional.count", "ops_listen", "wait"}
	if got := Keys(&testConfig{}); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// wantProblems returns the problems of an error that must have some.
func wantProblems(t *testing.T, err error) []string {
	t.Helper()
	config, ok := errors.AsType[*ConfigError](err)
	if !ok {
		t.Fatalf("error: %v", err)
	}
	lines := make([]string, len(config.Problems))
	for i, p := range config.Problems {
		lines[i] = p.String()
	}
	return lines
}
