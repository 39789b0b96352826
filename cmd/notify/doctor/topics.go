package doctor

import (
	"fmt"

	"notifymirror/mirror"
	"notifymirror/notifyd/finding"
)

// topic looks at a mirror topic or a checkpoint topic.
func (r *ruler) topic(t topic) {
	if isCheckpoint(t.name) {
		r.checkpoint(t)
	} else {
		r.mirrored(t)
	}
	r.replicas(t)
}

// checkpoint looks at what only a checkpoint topic must have.
func (r *ruler) checkpoint(t topic) {
	if t.partitions != 1 {
		r.say(finding.Error, fmt.Sprintf("topic %s has %d partitions", t.name, t.partitions), "and must have one",
			byHand("stop canald, and make it anew from a copy of its records"))
	}
	if policy := t.settings["cleanup.policy"]; t.settings != nil && policy != "compact" {
		r.rule(finding.Error, t, "cleanup.policy", "so Kafka deletes the mirror's checkpoint one day", "compact")
	}
}

// mirrored looks at what only a mirror topic must have.
func (r *ruler) mirrored(t topic) {
	if t.settings == nil {
		return
	}
	if want := r.kafka.MaxBody + mirror.TopicOverhead; r.kafka.MaxBody > 0 {
		if n, ok := number(t.settings, "max.message.bytes"); ok && n < want {
			r.rule(finding.Warning, t, "max.message.bytes", fmt.Sprintf("below max_body and 64 KiB (%d), so it refuses the largest messages", want), fmt.Sprint(want))
		}
	}
	if policy := t.settings["cleanup.policy"]; policy != "delete" && policy != "" {
		r.rule(finding.Error, t, "cleanup.policy", "so Kafka drops all but the last message of each key", "delete")
	}
	if kind := t.settings["message.timestamp.type"]; kind != "CreateTime" && kind != "" {
		r.rule(finding.Warning, t, "message.timestamp.type", "so a record's time is not that of its commit", "CreateTime")
	}
	short := shortestLife.Milliseconds()
	if n, ok := number(t.settings, "retention.ms"); ok && n >= 0 && n < short {
		r.rule(finding.Warning, t, "retention.ms", "so Kafka soon deletes what a mirror that was away for a day copies", "604800000")
	}
	for _, key := range []string{"message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"} {
		if n, ok := number(t.settings, key); ok && n < short {
			r.rule(finding.Warning, t, key, "so it refuses what a mirror that was away for a day copies", "9223372036854775807")
		}
	}
	if n, ok := number(t.settings, "retention.bytes"); ok && n >= 0 {
		r.rule(finding.Note, t, "retention.bytes", "so Kafka deletes by size, however new the records are", "-1")
	}
}

// replicas compares what writes wait for with what there is.
func (r *ruler) replicas(t topic) {
	if t.leaderless > 0 {
		r.say(finding.Error, fmt.Sprintf("topic %s has %d partitions without a leader", t.name, t.leaderless), "so the mirror cannot write to it",
			byHand("start the brokers that have them: kafka-topics.sh --bootstrap-server %s --describe --topic %s", r.at, t.name))
		return
	}
	const least = "min.insync.replicas"
	n, known := number(t.settings, least)
	switch {
	case known && int(n) > t.replicas:
		r.rule(finding.Warning, t, least, fmt.Sprintf("above its replication factor of %d, so Kafka refuses every write, or with newer versions while one broker is away", t.replicas), fmt.Sprint(max(1, t.replicas-1)))
	case known && min(int(n), t.replicas) > t.inSync:
		r.say(finding.Error, fmt.Sprintf("topic %s has %d replicas in sync and %s=%d", t.name, t.inSync, least, n), "so Kafka refuses every write",
			byHand("start the brokers that are away; the mirror goes on by itself"))
	case t.replicas == 1 && !r.embedded():
		r.say(finding.Warning, "topic "+t.name+" has one replica", "so a broker that is lost takes records with it",
			byHand("add replicas with kafka-reassign-partitions.sh, and set replication_factor in canald's configuration for new topics"))
	case known && n == 1 && t.replicas > 1:
		r.rule(finding.Warning, t, least, "so a record that one broker has is acknowledged, and lost with it", "2")
	case known && int(n) == t.replicas && t.replicas > 1:
		r.rule(finding.Warning, t, least, fmt.Sprintf("which is its replication factor of %d, so one broker that is away stops the mirror", t.replicas), fmt.Sprint(n-1))
	}
}

// rule says that a topic's setting should have another value.
func (r *ruler) rule(severity finding.Severity, t topic, key, why, want string) {
	r.say(severity, fmt.Sprintf("topic %s has %s=%s", t.name, key, t.settings[key]), why, finding.Mend{How: "type", Shell: []string{
		fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s=%s", r.at, t.name, key, want)}})
}
