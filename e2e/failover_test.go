package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"notifymirror/e2e/stage"
	"notifymirror/mirror"
	"notifymirror/notifyd/embedded/dbtest"
)

// The primary dies under load, and its replica is promoted. Brokers and mirror go on there by
// themselves: what was replicated is pushed and mirrored, once. What was not is in the mirror at
// most, which then stops, names exactly that, and goes on when it is told to.
func TestBrokersAndMirrorGoOnAtThePromotedReplica(t *testing.T) {
	pair := dbtest.NewPair(t)
	s := stage.On(t, pair.Primary)
	var schema string
	s.DSN, schema = pair.Schema()
	a, b := s.Notifyd("a").Start(), s.Notifyd("b").Start()
	s.AwaitShards(time.Minute, a, b)
	canald := s.Canald("mirror", quickTransactions).Start()
	c := s.Client(a, b)
	s.Topic(c, "trades")
	group := s.Listen(c, "risk", "trades")
	load := s.Load(c, "trades", 2)
	load.AwaitMore(1000, time.Minute)

	pair.Primary.Kill()
	pair.Promote()
	s.Database, s.DSN = pair.Replica, pair.Replica.DSN(schema)
	load.AwaitMore(1000, time.Minute)
	ahead := acceptWhatIsAhead(t, s, a, canald)
	load.AwaitMore(500, time.Minute)
	acked := load.Stop()

	inserts := s.BinlogFrom(mysql.Position{Name: "binlog.000001"}).All()
	var stored []string
	for _, i := range inserts {
		stored = append(stored, i.ID)
	}
	group.AwaitAll(stored, time.Minute)
	s.AwaitEmpty(time.Minute)
	if err := stage.OneWriter(inserts); err != nil {
		t.Error(err)
	}
	if last := inserts[len(inserts)-1]; last.Epoch <= 1024 {
		t.Errorf("the last message's epoch is %d", last.Epoch)
	}
	r := s.Mirror("trades")
	r.Await(len(inserts)+ahead.Count, time.Minute)
	r.Rest()
	got := map[string]string{} // id by source and seq
	sizes := map[string]int{}
	for _, rec := range r.Records {
		source := stage.Header(rec, "notify-source")
		source = source[strings.IndexByte(source, '/'):]
		sizes[source]++
		got[source+"/"+stage.Header(rec, "notify-seq")] = stage.Header(rec, "notify-id")
	}
	var mirrored, named []string
	for _, source := range []string{"/1", "/2"} {
		for seq := range sizes[source] {
			mirrored = append(mirrored, got[fmt.Sprint(source, "/", seq+1)])
		}
	}
	for _, m := range ahead.Messages {
		named = append(named, m.ID.String())
	}
	parted := sizes["/1"] - ahead.Count
	if only := mirrored[parted:sizes["/1"]]; !slices.Equal(only[:len(named)], named) {
		t.Errorf("only the mirror has %v, it named %v", only, named)
	}
	mirrored = slices.Delete(mirrored, parted, sizes["/1"])
	if !slices.Equal(mirrored, stored) || len(r.Records) != len(stored)+ahead.Count {
		t.Errorf("%d records of generations %v, %d messages stored, %d only in the mirror", len(r.Records), sizes, len(stored), ahead.Count)
	}
	t.Logf("%d acknowledged, %d stored at the new primary, %d only in the mirror", len(acked), len(stored), ahead.Count)
}

// acceptWhatIsAhead waits until canald goes on in a second generation. Where it has halted because it is ahead, that is
// accepted; what it named is returned.
func acceptWhatIsAhead(t *testing.T, at *stage.Stage, broker, canald *stage.Program) (named mirror.Ahead) {
	t.Helper()
	stage.Eventually(t, time.Minute, "the mirror goes on", func() error {
		s, err := mirrorStatus(canald)
		switch {
		case err != nil:
			return err
		case s.State == mirror.Copying && s.Generation == 2:
			return nil
		case s.HaltedReason == mirror.ReasonAhead && s.Ahead != nil && named.Count == 0:
			named = *s.Ahead
			var look mirror.Outcome
			answer := at.Notify(broker, "mirror", "resume", "--accept-gap", "-o", "json", "--ops", canald.Ops)
			if err := json.Unmarshal([]byte(answer), &look); err != nil {
				t.Fatalf("%v: %s", err, answer)
			}
			at.Notify(broker, "mirror", "resume", "--accept-gap="+look.Gap, "--ops", canald.Ops)
		}
		return fmt.Errorf("%s of generation %d: %s", s.State, s.Generation, s.LastError)
	})
	return named
}
