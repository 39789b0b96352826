//go:build engines

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/engines"
	"notifymirror/e2e/stage"
	"notifymirror/mirror"
)

// Where Apache Kafka's own rules take canald's rights away, the mirror waits, says what to do, and
// goes on by itself with every message once.
func TestRightsThatAreTakenAwayAreWaitedFor(t *testing.T) {
	k, err := engines.StartKafka(t.Context(), engines.KafkaConfig{
		Jars: os.Getenv(engines.EnvKafkaJars), Dir: t.TempDir(),
		Settings: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			// Everybody is ANONYMOUS here, the broker too: what has no rule is allowed.
			"allow.everyone.if.no.acl.found": "true",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Kill()
	s := stage.New(t)
	s.Kafka = k.Addr()
	_, canald, c := s.Running()
	s.Topic(c, "trades")
	load := s.Load(c, "trades", 1)
	s.Mirror("trades").Await(100, time.Minute)

	topic := s.Prefix + "trades"
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	rules := func(b *kadm.ACLBuilder) *kadm.ACLBuilder {
		return b.Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).AllowHosts().DenyHosts()
	}
	for _, refusal := range []struct {
		name   string
		reason mirror.Reason
		says   string
		begin  func(context.Context) error
		end    func(context.Context) error
	}{
		{
			"no right to write", mirror.ReasonDenied, "kafka-acls.sh",
			func(ctx context.Context) error {
				return allow(ctx, admin, rules(kadm.NewACLs()).Allow("User:ANONYMOUS").Operations(kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs))
			},
			func(ctx context.Context) error { return forget(ctx, admin, topic) },
		},
		{
			"no right at all", mirror.ReasonDenied, "kafka-acls.sh",
			func(ctx context.Context) error {
				return allow(ctx, admin, rules(kadm.NewACLs()).Allow("User:somebody").Operations(kadm.OpAll))
			},
			func(ctx context.Context) error { return forget(ctx, admin, topic) },
		},
	} {
		if err := refusal.begin(t.Context()); err != nil {
			t.Fatalf("%s: %v", refusal.name, err)
		}
		stage.Eventually(t, time.Minute, "the mirror waits: "+refusal.name, func() error {
			s, err := mirrorStatus(canald)
			if err == nil && (s.State != mirror.Waiting || s.WaitingReason != refusal.reason || !strings.Contains(s.Repair, refusal.says)) {
				err = fmt.Errorf("%+v", s)
			}
			return err
		})
		load.AwaitMore(300, time.Minute) // nobody who publishes waits
		if s, err := mirrorStatus(canald); err != nil || s.State != mirror.Waiting || s.WaitingReason != refusal.reason {
			t.Errorf("%s: later %+v, %v", refusal.name, s, err)
		}
		if err := refusal.end(t.Context()); err != nil {
			t.Fatalf("%s: %v", refusal.name, err)
		}
		awaitMirror(t, canald, time.Minute, mirror.Copying)
	}
	acked := load.Stop()
	r := s.Mirror("trades")
	r.Await(len(acked), time.Minute)
	r.Rest()
	if len(r.Records) != len(acked) {
		t.Errorf("%d records of %d messages", len(r.Records), len(acked))
	}
}

func allow(ctx context.Context, admin *kadm.Client, b *kadm.ACLBuilder) error {
	res, err := admin.CreateACLs(ctx, b)
	for _, r := range res {
		if err == nil {
			err = r.Err
		}
	}
	return err
}

// forget removes all rules of a topic.
func forget(ctx context.Context, admin *kadm.Client, topic string) error {
	res, err := admin.DeleteACLs(ctx, kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Allow().AllowHosts().Deny().DenyHosts().Operations())
	for _, r := range res {
		if err == nil {
			err = r.Err
		}
	}
	return err
}
