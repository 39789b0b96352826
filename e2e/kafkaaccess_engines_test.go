//go:build engines

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/engines"
	"notifymirror/e2e/stage"
	"notifymirror/mirror"
	"notifymirror/mirror/access"
	"notifymirror/notifyd/embedded"
	"notifymirror/stream"
)

// An Apache Kafka with TLS, accounts and rules lets in canald, notifyd and a reader with no more rights
// than deploy names. Who has something wrong is told what; a password that is changed under a mirror
// that runs is waited for, and every message is there once.
func TestAKafkaThatAsksWhoComes(t *testing.T) {
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	authority := stage.NewAuthority(t, "ours")
	secure := &engines.Secure{Port: port, Keys: keystore(t, authority)}
	k, err := engines.StartKafka(t.Context(), engines.KafkaConfig{
		Jars: os.Getenv(engines.EnvKafkaJars), Dir: t.TempDir(), Secure: secure,
		Settings: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS", // the broker itself, and this test
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Kill()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	door := &door{t: t, admin: kadm.NewClient(client), authority: authority}
	door.account("mirror", "right")
	door.account("broker", "right")
	door.account("reader", "right")

	s := stage.New(t)
	s.Kafka = secure.Addr()
	broker := s.Notifyd("a", fmt.Sprintf("kafka: {brokers: [%q], topic_prefix: %q%s}", s.Kafka, s.Prefix, door.section("broker", "right"))).Start()
	s.AwaitShards(time.Minute, broker)
	s.KafkaAccess = door.section("mirror", "wrong")
	refused := stage.Command(t, "canald", "--config", s.Canald("refused").Config())
	if refused.Code != 5 || !strings.Contains(refused.Stderr, "correct kafka.sasl.user and kafka.sasl.password") {
		t.Errorf("with a wrong password: exit %d: %s", refused.Code, refused.Stderr)
	}
	s.KafkaAccess = door.section("mirror", "right")
	canald := s.Canald("mirror")
	canald.Launch()
	waits(t, canald, "kafka-acls.sh", "User:mirror")
	door.allow("mirror", s)
	c := s.Client(broker)
	s.Topic(c, "trades")
	load := s.Load(c, "trades", 1)
	load.AwaitMore(100, time.Minute)
	stage.Eventually(t, time.Minute, "the mirror is ready", canald.Ready)

	door.account("mirror", "other")
	if err := k.Stop(t.Context()); err != nil { // connections that are open stay so
		t.Fatal(err)
	}
	if err := k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits(t, canald, "correct kafka.sasl.user and kafka.sasl.password")
	load.AwaitMore(100, time.Minute)
	door.account("mirror", "right")
	stage.Eventually(t, time.Minute, "the mirror is ready again", canald.Ready)
	want := load.Stop()

	file := door.file("reader", "right")
	tail := []string{"mirror", "tail", "trades", "--prefix", s.Prefix, "--from", "oldest", "--to", "newest", "-o", "jsonl", "--kafka", s.Kafka, "--kafka-config"}
	if r := stage.Command(t, "notify", append(tail, file)...); r.Code == 0 {
		t.Errorf("a reader without rights got %q", r.Stdout)
	}
	door.may("reader", kadm.NewACLs().Topics(s.Prefix), kadm.OpRead, kadm.OpDescribe)
	stage.Eventually(t, time.Minute, "everything is in the mirror", func() error {
		r := stage.Command(t, "notify", append(tail, file)...)
		if r.Code != 0 {
			return fmt.Errorf("exit %d: %s", r.Code, r.Stderr)
		}
		return onceEach(idsOf(t, r.Stdout), want)
	})
	if r := stage.Command(t, "notify", append(tail, door.file("reader", "wrong"))...); r.Code != 5 || !strings.Contains(r.Stderr, "kafka.sasl.password") {
		t.Errorf("a reader with a wrong password: exit %d: %s", r.Code, r.Stderr)
	}
	door.readers(s, want)
	door.diagnosed(canald)
	if text := "limits of the mirror's topics not read"; strings.Contains(broker.Log(), text) {
		t.Errorf("notifyd says: %s", text)
	}
}

// keystore is a broker's, of one PEM file.
func keystore(t *testing.T, a *stage.Authority) string {
	t.Helper()
	signed := a.Sign(time.Now().Add(time.Hour), "127.0.0.1")
	var all []byte
	for _, file := range []string{signed.Key, signed.Cert} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	path := filepath.Join(t.TempDir(), "keystore.pem")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// waits waits until a canald says that Kafka refuses it, and all of says.
func waits(t *testing.T, canald *stage.Program, says ...string) {
	t.Helper()
	stage.Eventually(t, time.Minute, fmt.Sprintf("the mirror waits, and says %q", says), func() error {
		got, err := mirrorStatus(canald)
		if err != nil {
			return err
		}
		for _, text := range says {
			if got.WaitingReason != mirror.ReasonDenied || !strings.Contains(got.Repair, text) {
				return fmt.Errorf("%+v", got)
			}
		}
		return nil
	})
}

// door is what decides who comes in.
type door struct {
	t         *testing.T
	admin     *kadm.Client
	authority *stage.Authority
}

// account makes an account, or changes its password.
func (d *door) account(user, password string) {
	d.t.Helper()
	done, err := d.admin.AlterUserSCRAMs(d.t.Context(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password}})
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// section is what a kafka section says for an account, behind its brokers.
func (d *door) section(user, password string) string {
	return fmt.Sprintf(", tls: {enabled: true, ca_file: %q}, sasl: {mechanism: scram-sha-512, user: %s, password: %s}", d.authority.File, user, password)
}

// file is one for --kafka-config.
func (d *door) file(user, password string) string {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), "kafka.yaml")
	if err := os.WriteFile(path, []byte("kafka: {"+strings.TrimPrefix(d.section(user, password), ", ")+"}\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// allow gives an account, and that of the brokers, the rights in deploy/README.md.
func (d *door) allow(user string, s *stage.Stage) {
	d.t.Helper()
	topics := []kadm.ACLOperation{kadm.OpCreate, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs}
	d.may(user, kadm.NewACLs().Topics(s.Prefix, "_notify-checkpoint."), topics...)
	d.may(user, kadm.NewACLs().TransactionalIDs(s.Cluster+"/"), kadm.OpWrite, kadm.OpDescribe)
	d.may(user, kadm.NewACLs().Groups(s.Cluster+"/"), kadm.OpRead)
	d.may("broker", kadm.NewACLs().Topics(s.Prefix), kadm.OpDescribe, kadm.OpDescribeConfigs)
}

func (d *door) may(user string, of *kadm.ACLBuilder, operations ...kadm.ACLOperation) {
	d.t.Helper()
	if err := allow(d.t.Context(), d.admin, of.ResourcePatternType(kadm.ACLPatternPrefixed).Allow("User:"+user).AllowHosts().Operations(operations...)); err != nil {
		d.t.Fatal(err)
	}
}

// reader is a consumer's configuration, of the account reader.
func (d *door) reader(s *stage.Stage, group string) stream.Config {
	return stream.Config{
		Brokers: []string{s.Kafka}, Topics: []string{"trades"}, Prefix: s.Prefix, Group: group,
		Access: access.Config{TLS: access.TLS{Enabled: true, CAFile: d.authority.File}, SASL: access.SASL{Mechanism: "scram-sha-512", User: "reader", Password: "right"}},
	}
}

// read has run read what was published. run is a consumer's, which calls seen for each record.
func (d *door) read(who string, want []string, run func(ctx context.Context, seen func(stream.Record)) error) {
	d.t.Helper()
	ctx, enough := context.WithTimeout(d.t.Context(), time.Minute)
	defer enough()
	var mu sync.Mutex
	var got []string
	err := run(ctx, func(r stream.Record) {
		mu.Lock()
		defer mu.Unlock()
		if got = append(got, r.ID.String()); len(got) == len(want) {
			enough()
		}
	})
	if err == nil {
		err = onceEach(got, want)
	}
	if err != nil {
		d.t.Errorf("%s: %v", who, err)
	}
}

// readers read everything with the rights in deploy/README.md, by the library.
func (d *door) readers(s *stage.Stage, want []string) {
	d.t.Helper()
	consume := func(cfg stream.Config) func(context.Context, func(stream.Record)) error {
		return func(ctx context.Context, seen func(stream.Record)) error {
			cfg.Handler = func(_ context.Context, r stream.Record) error { seen(r); return nil }
			c, err := stream.New(cfg)
			if err != nil {
				return err
			}
			return c.Run(ctx)
		}
	}
	d.may("reader", kadm.NewACLs().Groups("dash"), kadm.OpRead)
	d.read("a member of a group", want, consume(d.reader(s, "dash")))

	d.may("reader", kadm.NewACLs().Groups("replay."), kadm.OpRead, kadm.OpDelete)
	replay := d.reader(s, "replay.x")
	replay.End = stream.Newest()
	d.read("a replay", want, consume(replay))

	d.may("reader", kadm.NewACLs().Groups("totals"), kadm.OpRead)
	d.may("reader", kadm.NewACLs().TransactionalIDs("totals/"), kadm.OpWrite, kadm.OpDescribe)
	d.may("reader", kadm.NewACLs().Topics("totals-out"), kadm.OpWrite, kadm.OpDescribe)
	d.may("reader", kadm.NewACLs().Topics("totals-state"), kadm.OpCreate, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs)
	if _, err := d.admin.CreateTopic(d.t.Context(), 1, 1, nil, "totals-out"); err != nil {
		d.t.Fatal(err)
	}
	d.read("a processor", want, func(ctx context.Context, seen func(stream.Record)) error {
		p, err := stream.NewProcessor(stream.ProcessorConfig{
			Config: d.reader(s, "totals"), State: "totals-state",
			Process: func(_ context.Context, step *stream.Step, batch []stream.Record) error {
				for _, r := range batch {
					step.Emit("totals-out", r.Key, r.Body)
					seen(r)
				}
				step.Put("last", []byte(batch[len(batch)-1].ID.String()))
				return nil
			},
		})
		if err != nil {
			return err
		}
		return p.Run(ctx)
	})
}

// diagnosed has the doctor look through canald's door.
func (d *door) diagnosed(canald *stage.Program) {
	d.t.Helper()
	r := stage.Command(d.t, "notify", "doctor", "--canald-config", canald.Config(), "-o", "json")
	for _, denied := range []string{"no Kafka at", "lets nobody in"} {
		if strings.Contains(r.Stdout, denied) {
			d.t.Errorf("doctor: %s", r.Stdout)
		}
	}
	if r.Code != 0 && r.Code != 1 && r.Code != 3 {
		d.t.Errorf("doctor: exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// idsOf are those of the records that mirror tail printed.
func idsOf(t *testing.T, lines string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var r struct{ ID string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// onceEach tells what is missing or repeated.
func onceEach(got, want []string) error {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("%d messages, and not the %d that were published", len(got), len(want))
	}
	return nil
}
