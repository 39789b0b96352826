package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"notifymirror/mirror"
	"notifymirror/mirror/access"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/finding"
	"notifymirror/notifyd/schema/migrate"
	"notifymirror/notifyd/schema/preflight"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// goodTopic is what a well-made mirror topic says.
func goodTopic() topic {
	return topic{name: "notify.t", partitions: 8, replicas: 3, inSync: 3, settings: map[string]string{
		"cleanup.policy": "delete", "max.message.bytes": "4259840", "min.insync.replicas": "2", "retention.ms": "604800000",
		"retention.bytes": "-1", "message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": "9223372036854775807",
	}}
}

func goodBroker() broker {
	return broker{id: 1, versions: map[int16]int16{0: 12, 3: 13, 22: 5, 32: 4}, settings: map[string]string{
		"transaction.max.timeout.ms": "900000", "transactional.id.expiration.ms": "604800000",
		"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000",
		"unclean.leader.election.enable": "false", "auto.create.topics.enable": "false", "transaction.state.log.replication.factor": "3",
	}}
}

var someKafka = Kafka{Brokers: []string{"k:9092"}, TopicPrefix: "notify.", MaxBody: 4 << 20, TransactionTimeout: 10 * time.Second}

func TestEveryMistakeInKafkaIsFound(t *testing.T) {
	set := func(key, value string) func(*answers) {
		return func(a *answers) { a.topics[0].settings[key] = value }
	}
	atBroker := func(key, value string) func(*answers) {
		return func(a *answers) { a.brokers[0].settings[key] = value }
	}
	for name, c := range map[string]struct {
		change   func(*answers)
		severity finding.Severity
		says     string
	}{
		"good":                   {func(*answers) {}, "", ""},
		"not of the mirror":      {func(a *answers) { a.brokers[0].versions[99] = 0 }, "", ""},
		"old":                    {func(a *answers) { a.brokers[0].versions[3] = 9 }, finding.Error, "is older than 2.8"},
		"embedded":               {func(a *answers) { a.cluster = mirror.EmbeddedCluster }, finding.Error, "kafka.allow_embedded"},
		"settings denied":        {func(a *answers) { a.deniedTopics = []string{"notify.t"} }, finding.Warning, "--operation DescribeConfigs --resource-pattern-type prefixed --topic notify.t"},
		"brokers denied":         {func(a *answers) { a.deniedBrokers = []string{"1", "2"} }, finding.Note, "User:CANALD --operation DescribeConfigs --cluster"},
		"transactions too short": {atBroker("transaction.max.timeout.ms", "9999"), finding.Error, "transaction_timeout of 10000 ms"},
		"ids forgotten":          {atBroker("transactional.id.expiration.ms", "3600000"), finding.Warning, "forgets a mirror"},
		"sessions too long":      {atBroker("group.min.session.timeout.ms", "6001"), finding.Error, "put group.min.session.timeout.ms=6000"},
		"sessions too short":     {atBroker("group.max.session.timeout.ms", "5999"), finding.Error, "put group.max.session.timeout.ms=30000"},
		"unclean leaders":        {atBroker("unclean.leader.election.enable", "true"), finding.Warning, "may become a leader"},
		"topics made unasked":    {atBroker("auto.create.topics.enable", "true"), finding.Note, "makes it"},
		"one place of state":     {func(a *answers) { a.brokers[0].settings["transaction.state.log.replication.factor"] = "1" }, finding.Warning, "stops the mirror"},
		"limit below the body":   {set("max.message.bytes", "4259839"), finding.Warning, "--entity-name notify.t --add-config max.message.bytes=4259840"},
		"compacted":              {set("cleanup.policy", "compact"), finding.Error, "--add-config cleanup.policy=delete"},
		"broker's time":          {set("message.timestamp.type", "LogAppendTime"), finding.Warning, "not that of its commit"},
		"short retention":        {set("retention.ms", "86399999"), finding.Warning, "--add-config retention.ms=604800000"},
		"endless retention":      {set("retention.ms", "-1"), "", ""},
		"old records refused":    {set("message.timestamp.before.max.ms", "1000"), finding.Warning, "refuses what a mirror"},
		"retention by size":      {set("retention.bytes", "1000"), finding.Note, "--add-config retention.bytes=-1"},
		"no leader":              {func(a *answers) { a.topics[0].leaderless = 1 }, finding.Error, "without a leader"},
		"more than there are":    {set("min.insync.replicas", "4"), finding.Warning, "is away: type: kafka-configs.sh --bootstrap-server k:9092"},
		"too few in sync":        {func(a *answers) { a.topics[0].inSync = 1 }, finding.Error, "1 replicas in sync"},
		"all must be there":      {set("min.insync.replicas", "3"), finding.Warning, "--add-config min.insync.replicas=2"},
		"one suffices":           {set("min.insync.replicas", "1"), finding.Warning, "--add-config min.insync.replicas=2"},
		"one replica": {func(a *answers) {
			a.topics[0].replicas, a.topics[0].inSync = 1, 1
			a.topics[0].settings["min.insync.replicas"] = "1"
		}, finding.Warning, "has one replica"},
		"checkpoint is deleted":   {func(a *answers) { a.topics[1].settings["cleanup.policy"] = "compact,delete" }, finding.Error, "--entity-name _notify-checkpoint.s --add-config cleanup.policy=compact"},
		"checkpoint of two parts": {func(a *answers) { a.topics[1].partitions = 2 }, finding.Error, "must have one"},
	} {
		t.Run(name, func(t *testing.T) {
			checkpoint := goodTopic()
			checkpoint.name, checkpoint.partitions = "_notify-checkpoint.s", 1
			checkpoint.settings["cleanup.policy"] = "compact"
			second := goodBroker()
			second.id = 2
			a := answers{cluster: "real", brokers: []broker{goodBroker(), second}, topics: []topic{goodTopic(), checkpoint}}
			c.change(&a)
			found := someKafka.judge(a)
			switch {
			case c.says == "" && len(found) > 0:
				t.Errorf("found %v", found)
			case c.says != "" && (len(found) != 1 || found[0].Severity != c.severity || !strings.Contains(found[0].String(), c.says) || found[0].Why == ""):
				t.Errorf("want %s with %q, found %v", c.severity, c.says, found)
			}
		})
	}
}

func TestAPasswordInTheClearIsFound(t *testing.T) {
	k := someKafka
	k.Access.SASL = access.SASL{Mechanism: "plain", User: "canald", Password: "p"}
	good := answers{cluster: "real", brokers: []broker{goodBroker()}}
	if found := k.judge(good); len(found) != 1 || found[0].Severity != finding.Warning || !strings.Contains(found[0].String(), "kafka.tls.enabled") {
		t.Errorf("found %v", found)
	}
	k.Access.TLS.Enabled = true
	if found := k.judge(good); len(found) != 0 {
		t.Errorf("with TLS: %v", found)
	}
}

func TestEmbeddedKafkaIsSaidWhereItIsAllowed(t *testing.T) {
	k := someKafka
	k.AllowEmbedded = true
	one := goodTopic()
	one.replicas, one.inSync, one.settings["min.insync.replicas"] = 1, 1, "1"
	found := k.judge(answers{cluster: mirror.EmbeddedCluster, brokers: []broker{goodBroker()}, topics: []topic{one}})
	if len(found) != 1 || found[0].Severity != finding.Note || !strings.Contains(found[0].String(), "development only") {
		t.Errorf("found %v", found)
	}
}

func TestClockOfADaemonIsCompared(t *testing.T) {
	var shift time.Duration
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(shift).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	d := Daemon{"notifyd", strings.TrimPrefix(server.URL, "http://")}
	for _, c := range []struct {
		shift time.Duration
		found int
	}{{0, 0}, {time.Hour, 1}, {-time.Hour, 1}} {
		shift = c.shift
		if found := d.check(t.Context()); len(found) != c.found {
			t.Errorf("shift %s: %v", c.shift, found)
		}
	}
	server.Close()
	if found := d.check(t.Context()); len(found) != 1 || found[0].Severity != finding.Note {
		t.Errorf("of one that is away: %v", found)
	}
}

func TestDiskWithoutRoomIsFound(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "not", "made", "yet")
	if found := (Disk{Path: missing, Need: 1, For: "x"}).check(); len(found) != 0 {
		t.Errorf("with room: %v", found)
	}
	found := Disk{Path: missing, Need: 1 << 62, For: "x"}.check()
	if len(found) != 1 || found[0].Severity != finding.Warning || !strings.Contains(found[0].Subject, missing) {
		t.Errorf("without: %v", found)
	}
}

func TestWhatIsLookedAtComesFromTheDaemonsConfigurations(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broker := write("notifyd.yaml", "stores: {a: {dsn: 'b:p@tcp(db:3306)/notify'}}\nmax_body: 8MiB\nops_listen: 127.0.0.1:1\n")
	canald := write("canald.yaml", "stores: {a: {dsn: '${env:M}'}}\nkafka: {brokers: ['k:9092']}\nspool_bytes: 1GiB\nspool_dir: "+dir+"\n")
	got, err := FromFiles(broker, canald, []string{"M=m:p@tcp(db:3306)/notify"})
	if err != nil {
		t.Fatal(err)
	}
	stores := []Store{{"b:p@tcp(db:3306)/notify", preflight.Broker, 8 << 20}, {"m:p@tcp(db:3306)/notify", preflight.Mirror, 4 << 20}}
	if fmt.Sprint(got.Stores) != fmt.Sprint(stores) {
		t.Errorf("stores %v, want %v", got.Stores, stores)
	}
	if k := got.Kafka; k == nil || fmt.Sprint(k.Brokers) != "[k:9092]" || k.MaxBody != 8<<20 || k.TopicPrefix != "notify." || k.TransactionTimeout != 10*time.Second {
		t.Errorf("kafka %+v", got.Kafka)
	}
	if fmt.Sprint(got.Daemons) != "[{notifyd 127.0.0.1:1} {canald 127.0.0.1:7711}]" || len(got.Disks) != 1 || got.Disks[0].Need != 1<<30 {
		t.Errorf("daemons %v, disks %v", got.Daemons, got.Disks)
	}
	if len(got.Said) != 1 || !strings.Contains(got.Said[0].String(), "set max_body of canald to 8388608") {
		t.Errorf("said %v", got.Said)
	}
	if _, err := FromFiles(write("bad.yaml", "storse: {}\n"), "", nil); err == nil || !strings.Contains(err.Error(), "storse") {
		t.Errorf("a bad file: %v", err)
	}
}

// A store that both daemons name, on this machine, with its mistakes said once, the worst first.
func TestFindingsOfAStoreAreSaidOnceTheWorstFirst(t *testing.T) {
	address := dbtest.Schema(t)
	if _, err := migrate.Migrate(t.Context(), address, migrate.Options{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	all := Check(t.Context(), Target{
		Stores: []Store{{DSN: address, Role: preflight.Broker, MaxBody: 1 << 30}, {DSN: address, Role: preflight.Mirror, MaxBody: 1 << 30}},
		Disks:  []Disk{{Path: t.TempDir(), Need: 1 << 62, For: "x"}},
	})
	seen := map[string]bool{}
	for i, f := range all {
		if seen[f.String()] {
			t.Errorf("twice: %s", f)
		}
		seen[f.String()] = true
		if i > 0 && f.Severity == finding.Error && all[i-1].Severity != finding.Error {
			t.Errorf("%s behind %s", f, all[i-1])
		}
	}
	if Exit(all) != 1 || !strings.Contains(all[0].Subject, "max_allowed_packet=") {
		t.Errorf("exit %d of %v", Exit(all), all)
	}
}

func TestExitCodeIsThatOfTheWorstFinding(t *testing.T) {
	note, warning := finding.Finding{Severity: finding.Note}, finding.Finding{Severity: finding.Warning}
	for want, all := range map[int][]finding.Finding{
		0: {note}, 3: {warning, note}, 5: {{Severity: finding.Error, Exit: 5}, {Severity: finding.Error, Exit: 1}, warning},
	} {
		if got := Exit(all); got != want {
			t.Errorf("exit %d of %v", got, all)
		}
	}
	if got := Exit(nil); got != 0 {
		t.Errorf("exit %d of nothing", got)
	}
}

// typed is what the commands of findings set, by topic and key.
func typed(all []finding.Finding) map[string]string {
	set := map[string]string{}
	for _, f := range all {
		for _, line := range f.Mend.Shell {
			_, name, _ := strings.Cut(line, "--entity-name ")
			name, config, _ := strings.Cut(name, " --add-config ")
			key, value, _ := strings.Cut(config, "=")
			set[name+" "+key] = value
		}
	}
	return set
}
