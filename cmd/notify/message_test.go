package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror/record"
)

func TestAMessagesLifeJoinsTheStoresToTheMirror(t *testing.T) {
	b, kafka := startBroker(t), mirrored(t, 4)
	const id = "00000000-0000-0000-0000-000000000001"
	r := b.notify(t, "", "message", "show", id, "--kafka", kafka)
	r.out = regexp.MustCompile(`; partition 0: [^;\n]*|; nothing in 1 of 2 partitions`).ReplaceAllString(r.out, "") // it ends when the record is found
	r.want(t, 0, "id\t"+id+"\ntopic\tt\nkey\tk1\nborn\t1970-01-01T00:00:01.000Z\n"+
		"stored\tstore a, shard 3, pos 77; owner one\ngroup mail\tacknowledged\ngroup risk\twaits: attempt 4 of 16 at 1970-01-01T00:00:09Z, after: nack: db down\n"+
		"mirror\tnotify.t, partition 1, offset 0; committed 1970-01-01T00:00:01Z, seq 2 of 5f1c9e1e-0000-4000-8000-000000000001/1\n"+
		"searched\tnotify.t from 1970-01-01T00:00:00.000Z to 1970-01-02T00:00:01.000Z; partition 1: offsets 0 to 0\n"+
		"why\twaits for 1 of 2 groups: risk\n")
	r = b.notify(t, "", "message", "show", id, "--kafka", kafka, "-o", "jsonl")
	for _, part := range []string{`"why":"waits for 1 of 2 groups: risk"`, `"pos":77`, `"owner_asked":true`, `"body":"b"`, `"group":"risk","state":"waiting","attempts":3,"max_attempts":16,"next_at":"1970-01-01T00:00:09Z"`,
		`"kafka_topic":"notify.t","partition":1,"offset":0`, `"seq":2`, `"searched":[{"topic":"notify.t"`} {
		if r.code != 0 || !strings.Contains(r.out, part) {
			t.Errorf("exit %d, no %s in %s, stderr %s", r.code, part, r.out, r.err)
		}
	}
	r = b.notify(t, "", "message", "show", id, "--kafka", "127.0.0.1:1")
	if r.code != 0 || !strings.Contains(r.out, "not searched: Kafka at 127.0.0.1:1 cannot be reached; --kafka or NOTIFY_KAFKA names another\nwhy\twaits") {
		t.Errorf("without Kafka: %+v", r)
	}
}

// Of MariaDB a commit is known to the second, of MySQL to the microsecond.
func TestACommitTimeIsShownAsFarAsItIsKnown(t *testing.T) {
	for at, want := range map[time.Time]string{
		time.UnixMilli(1000): "1970-01-01T00:00:01Z", time.UnixMilli(1862): "1970-01-01T00:00:01.862Z",
	} {
		if got := commitClock(at); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAMessageThatIsNoneYetIsNotLookedForInTheMirror(t *testing.T) {
	b := startBroker(t)
	for id, want := range map[string]string{
		"00000000-0000-0000-0000-0000000000aa": "topic\tt\nhalf\tprepared 1970-01-01T00:00:01.000Z by producer group shop\nmirror\tnot searched: a half is mirrored when it is committed\nwhy\twaits as a half: nobody has decided it\n",
		"00000000-0000-0000-0000-0000000000bb": "decision\trollback at 1970-01-01T00:00:01.000Z\nmirror\tnot searched: what was rolled back is not mirrored\nwhy\tnever a message\n",
		"00000000-0000-0000-0000-0000000000cc": "topic\tt\noutbox\tstore a, row 7, rejected at 1970-01-01T00:00:01.000Z\nmirror\tnot searched: an outbox row is mirrored when it is relayed\nnot known\tstore b: it is away\nwhy\trejected from the outbox\n",
	} {
		b.notify(t, "", "message", "show", id).want(t, 0, "id\t"+id+"\n"+want)
	}
}

// What no store knows is looked for from the time in its id on, in the topics that are mirrored.
func TestADeletedMessageIsFoundInTheMirrorByTheTimeInItsID(t *testing.T) {
	ids := make([]uuid.UUID, 6)
	var all []record.Message
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
		sec, nsec := ids[i].Time().UnixTime()
		born := time.Unix(sec, nsec).Add(time.Duration(i) * 10 * time.Hour) // the later ones waited in an outbox
		all = append(all, record.Message{ID: ids[i], Key: fmt.Appendf(nil, "k%d", i), BornAt: born, CommitTime: born})
	}
	kafka := kafkaWith(t, all, func(i int) int32 { return record.Partition(all[i].Key, 2) })
	b := startBroker(t)
	show := func(i int, args ...string) result {
		return b.notify(t, "", append([]string{"message", "show", ids[i].String(), "--kafka", kafka, "--topic", "t"}, args...)...)
	}
	if r := show(2); r.code != 0 || !strings.Contains(r.out, "seq 3 of ") || !strings.Contains(r.out, "why\tdelivered and deleted: the mirror has it, and no group is owed it any more\n") {
		t.Errorf("found: %+v", r)
	}
	if r := show(5); r.code != daemon.ExitNotFound || !strings.Contains(r.out, "mirror\tno record in what was searched\nsearched\tnotify.t from ") || strings.Count(r.err, "\n") != 2 {
		t.Errorf("more than a day later: %+v", r)
	}
	if r := show(5, "--until", "100h"); r.code != 0 || !strings.Contains(r.out, "seq 6 of ") {
		t.Errorf("with more time: %+v", r)
	}
	key := string(all[5].Key)
	if r := show(5, "--until", "100h", "--key", key); r.code != 0 || !strings.Contains(r.out, fmt.Sprintf("; partition %d: offsets ", record.Partition([]byte(key), 2))) || strings.Count(r.out, "; partition ") != 1 {
		t.Errorf("by key: %+v", r)
	}
	other := "x"
	for record.Partition([]byte(other), 2) == record.Partition([]byte(key), 2) {
		other += "x"
	}
	if r := show(5, "--until", "100h", "--key", other); r.code != 0 || !strings.Contains(r.out, "seq 6 of ") {
		t.Errorf("where the key was before: %+v", r)
	}
	if r := b.notify(t, "", "message", "show", ids[2].String(), "--kafka", kafka); r.code != daemon.ExitPartly || !strings.Contains(r.err, "notify.a not searched: it is not in Kafka") {
		t.Errorf("in every mirrored topic: %+v", r)
	}
	if r := notify(t, "", "message", "show", ids[2].String(), "--kafka", kafka, "--topic", "t", "--server", "127.0.0.1:1"); r.code != 0 || !strings.Contains(r.out, "not known\tthe stores: broker 127.0.0.1:1 cannot be reached") {
		t.Errorf("without a broker: %+v", r)
	}
}

func TestMessageShowTellsWhatIsWrong(t *testing.T) {
	b := startBroker(t)
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{daemon.ExitUsage, `ID "x": not a UUID`, []string{"x"}},
		{daemon.ExitUsage, `--since: "yesterday": want a time`, []string{uuid.NewString(), "--since", "yesterday"}},
		{daemon.ExitUsage, `--until: "never": want a time`, []string{uuid.NewString(), "--until", "never"}},
		{daemon.ExitUsage, "is not after", []string{uuid.NewString(), "--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z"}},
		{daemon.ExitNotFound, "was not found: delivered and deleted, or never stored here", []string{uuid.NewString()}},
	} {
		if r := b.notify(t, "", append([]string{"message", "show"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.text) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
	if r := b.notify(t, "", "message", "show", uuid.NewString()); !strings.Contains(r.out, "mirror\tnot searched: the id has no time in it (it is no UUIDv7); give --since\n") {
		t.Errorf("an id without a time: %+v", r)
	}
	if r := notify(t, "", "message", "show", uuid.NewString(), "--server", "127.0.0.1:1"); r.code != daemon.ExitUnreachable {
		t.Errorf("without a broker: %+v", r)
	}
}
