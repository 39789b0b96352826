package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestKafkaConfigSaysHowToGetIn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "me", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	at := cluster.ListenAddrs()[0]
	account := "kafka: {brokers: ['" + at + "'], sasl: {mechanism: plain, user: me, password: '${env:NOTIFY_TEST_PASSWORD}'}}\n"
	t.Setenv("NOTIFY_TEST_PASSWORD", "secret")
	good := write("good.yaml", account)
	for _, c := range []struct {
		flags []string
		code  int
		says  string
	}{
		{[]string{"--kafka-config", good}, 4, "topic is not in kafka"},
		{[]string{"--kafka-config", good, "--kafka", "127.0.0.1:1"}, 6, "127.0.0.1:1"},
		{[]string{"--kafka", at}, 6, "kafka.sasl"},
		{[]string{"--kafka-config", write("bad.yaml", "kafka: {sasl: {mechanism: plan, user: u, password: p}}\n")}, 2, "plain, scram-sha-256 or scram-sha-512"},
		{[]string{"--kafka-config", filepath.Join(dir, "none.yaml")}, 2, "--kafka-config: stat " + dir},
	} {
		r := notify(t, "", append([]string{"mirror", "tail", "t"}, c.flags...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: exit %d: %s", c.flags, r.code, r.err)
		}
	}
}
