package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/cmd/daemon"
	"notifymirror/deploy"
	"notifymirror/notifyd"
	"notifymirror/notifyd/message"
)

// reference writes the reference configuration with its secret in place.
func reference(t *testing.T) (path, text string) {
	t.Helper()
	content, err := deploy.Files.ReadFile("notifyd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	text = strings.ReplaceAll(string(content), "/etc/notify", directory)
	path = filepath.Join(directory, "notifyd.yaml")
	for name, body := range map[string]string{path: text, filepath.Join(directory, "broker.password"): "p@ss/word\n"} {
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
	if store := c.Broker.Stores["a"]; store.DSN != "notify_broker:p@ss/word@tcp(127.0.0.1:3306)/notify" || store.Role != notifyd.RoleMain {
		t.Errorf("store: %+v", store)
	}
	defaults := notifyd.Config{
		Listen: notifyd.DefaultListen, Stores: c.Broker.Stores, MaxBodyBytes: message.DefaultMaxBodyBytes,
		PublishMemory: notifyd.DefaultPublishMemory, DeliveryMemory: notifyd.DefaultDeliveryMemory,
		UnstoredMemory: notifyd.DefaultUnstoredMemory, UnstoredMessages: notifyd.DefaultUnstoredCount,
		AckWait: notifyd.Duration(notifyd.DefaultAckWait), RetryMin: notifyd.Duration(notifyd.DefaultRetryMin),
		RetryMax: notifyd.Duration(notifyd.DefaultRetryMax), DedupWindow: notifyd.Duration(notifyd.DefaultDedupWindow),
		CheckAfter: notifyd.Duration(notifyd.DefaultCheckAfter), CheckMax: notifyd.Duration(notifyd.DefaultCheckMax),
		CheckBudget: notifyd.DefaultCheckBudget,
		MaxAttempts: notifyd.DefaultMaxAttempts, RedriveRate: notifyd.DefaultRedriveRate, EgressNetworks: []string{}, SecretKeys: []string{},
		LeaseTime: notifyd.Duration(notifyd.DefaultLeaseTime),
	}
	if !reflect.DeepEqual(c.Broker, defaults) {
		t.Errorf("the reference says %+v, the defaults are %+v", c.Broker, defaults)
	}
	if c.OpsListen != defaultOpsListen {
		t.Errorf("ops_listen: %s", c.OpsListen)
	}
	if missing := deploy.Undocumented(text, daemon.Keys(&c)); len(missing) > 0 {
		t.Errorf("keys without a description: %q", missing)
	}
}

func TestEveryProblemOfAConfigurationIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notifyd.yaml")
	text := "id: a b\nlisten: 0.0.0.0:7700\nops_listen: ':7701'\nretry_min: 5s\nretry_max: 1s\nlog_level: loud\n" +
		"max_body: 4MB\nstores: {'A B': {dsn: 'root:secret/x'}, b: {dsn: 'u@tcp(h:1)/s'}, c: {dsn: 'u@tcp(h:1)/t', role: outbox}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := load(daemon.Flags{Config: path})
	if daemon.ExitCode(err) != daemon.ExitUsage {
		t.Fatalf("error %v", err)
	}
	for _, says := range []string{"id: ", "listen: ", "ops_listen: ", "retry_min: ", "log_level: ", path + `:7:11: max_body: "4MB": not a size`,
		"stores: 3 have the role main", "stores.A B: ", `stores.c.role: "outbox" is not main or outbox-only`, "stores.A B.dsn: "} {
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
	registry := daemon.NewRegistry(daemon.ReadBuild())
	if _, err := notifyd.New(c.Broker, notifyd.Deps{Logger: slog.New(slog.DiscardHandler), Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	readme, err := deploy.Files.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 1000)
	registry.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		name := metricName.FindStringSubmatch(d.String())[1]
		if strings.HasPrefix(name, "notify_") && !strings.Contains(string(readme), "| `"+name+"` |") {
			t.Errorf("metric %s is not in the README", name)
		}
	}
}
