package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"notifymirror/mirror"
	"notifymirror/notifyd/finding"
)

// shortestLife is how long a transactional id that is idle must live, and how long records
// must be kept.
const shortestLife = 24 * time.Hour

// needs are the requests that the mirror makes, and the release that brought their version.
var needs = []struct {
	key, version  int16
	release, name string
}{
	{0, 3, "0.11", "transactions"},
	{3, 10, "2.8", "topic ids, by which a topic that was made anew is noticed"},
	{22, 1, "2.0", "InitProducerId"},
	{32, 1, "1.1", "the settings of topics"},
}

// whole looks at the cluster.
func (r *ruler) whole() {
	if r.embedded() {
		mend := byHand("name a real Kafka in kafka.brokers for anything but development")
		if !r.kafka.AllowEmbedded {
			r.say(finding.Error, r.at+" is the embedded Kafka", "which canald refuses without kafka.allow_embedded", mend)
		} else {
			r.say(finding.Note, r.at+" is the embedded Kafka", "which is for development only: one node, no replicas, made of a broker that calls itself fake", mend)
		}
	}
	r.account()
}

// account looks at what canald's account may not do, and at what it gives away.
func (r *ruler) account() {
	principal := "User:" + cmp.Or(r.kafka.Access.SASL.User, "CANALD")
	allow := func(resource string) finding.Mend {
		return finding.Mend{How: "type", Shell: []string{"kafka-acls.sh --bootstrap-server " + r.at + " --add --allow-principal " + principal + " --operation DescribeConfigs " + resource}}
	}
	for _, name := range r.answers.deniedTopics {
		r.say(finding.Warning, "the settings of topic "+name+" may not be read", "so canald cannot read the real limits either",
			allow("--resource-pattern-type prefixed --topic "+name))
	}
	if names := r.answers.deniedBrokers; len(names) > 0 {
		r.say(finding.Note, "the settings of Kafka broker "+strings.Join(names, ", ")+" at "+r.at+" may not be read", "so that they were not looked at; canald does not need them", allow("--cluster"))
	}
	if r.kafka.Access.SASL.Mechanism == "plain" && !r.kafka.Access.TLS.Enabled {
		r.say(finding.Warning, "kafka.sasl.mechanism is plain, and kafka.tls.enabled false", "so the password goes over the network in the clear",
			byHand("set kafka.tls.enabled to true, or use scram-sha-512"))
	}
}

func (r *ruler) embedded() bool { return r.answers.cluster == mirror.EmbeddedCluster }

// broker looks at what a broker speaks and at its settings.
func (r *ruler) broker(b broker) {
	name := fmt.Sprintf("Kafka broker %d at %s", b.id, r.at)
	for _, n := range needs {
		if b.versions[n.key] < n.version {
			r.say(finding.Error, name+" is older than "+n.release, "so it lacks "+n.name, byHand("upgrade Kafka to %s or newer", n.release))
		}
	}
	rule := func(severity finding.Severity, key, why, want string) {
		r.say(severity, fmt.Sprintf("%s has %s=%s", name, key, b.settings[key]), why,
			byHand("put %s=%s into server.properties of every broker and restart them one by one", key, want))
	}
	const (
		longest, life     = "transaction.max.timeout.ms", "transactional.id.expiration.ms"
		shortest, slowest = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
	)
	timeout, session := r.kafka.TransactionTimeout.Milliseconds(), mirror.Session.Milliseconds()
	if n, ok := number(b.settings, longest); ok && n < timeout {
		rule(finding.Error, longest, fmt.Sprintf("below canald's transaction_timeout of %d ms, so it refuses every transaction", timeout), fmt.Sprint(timeout))
	}
	if n, ok := number(b.settings, life); ok && n < shortestLife.Milliseconds() {
		rule(finding.Warning, life, "so it forgets a mirror that is idle or away for that long, which then begins anew", "604800000")
	}
	if n, ok := number(b.settings, shortest); ok && n > session {
		rule(finding.Error, shortest, fmt.Sprintf("above the session of %d ms by which canalds decide who copies, so they cannot join", session), fmt.Sprint(session))
	}
	if n, ok := number(b.settings, slowest); ok && n < session {
		rule(finding.Error, slowest, fmt.Sprintf("below the session of %d ms by which canalds decide who copies, so they cannot join", session), fmt.Sprint(max(session, 30000)))
	}
	if b.settings["unclean.leader.election.enable"] == "true" {
		rule(finding.Warning, "unclean.leader.election.enable", "so a broker that lacks acknowledged records may become a leader, and they are lost", "false")
	}
	if b.settings["auto.create.topics.enable"] == "true" && !r.embedded() {
		rule(finding.Note, "auto.create.topics.enable", "so a reader that asks for a topic before its first message makes it, without room for the largest message", "false")
	}
	if b.settings["transaction.state.log.replication.factor"] == "1" && len(r.answers.brokers) > 1 {
		r.say(finding.Warning, name+" has transaction.state.log.replication.factor=1", "so one broker that is away stops the mirror",
			byHand("raise the replicas of __transaction_state with kafka-reassign-partitions.sh, and the setting"))
	}
}

// number is a setting that counts something; ok is false where it is not there.
func number(settings map[string]string, key string) (n int64, ok bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(settings[key]), 10, 64)
	return n, err == nil
}
