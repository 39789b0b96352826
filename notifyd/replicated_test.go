package notifyd_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/embedded/dbtest"
)

// A replicatedStage has a server with a replica, the topic "money" that needs it and "news" that does not.
type replicatedStage struct {
	*stage
	cut     *cutter
	replica *dbtest.Replica
	addr    string
	m       notifyv1connect.MessagingClient
}

func TestAReplicatedTopicIsAcknowledgedOnlyWhileAReplicaAcknowledges(t *testing.T) {
	s, cut := behind(t)
	replica := dbtest.SemiSync(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "news", "g")
	code, answer := s.post(addr, "Admin/CreateTopic", `{"topic":{"name":"money","durability":"DURABILITY_REPLICATED"}}`)
	if topic, _ := answer["topic"].(map[string]any); code != http.StatusOK || topic["durability"] != "DURABILITY_REPLICATED" {
		t.Fatalf("CreateTopic: %d %v", code, answer)
	}
	s.add(addr, &notifyv1.Subscription{Group: "g", Topic: "money"}) // nobody takes them: they stay
	r := &replicatedStage{stage: s, cut: cut, replica: replica, addr: addr, m: raw(addr)}
	r.withoutAReplica()
	r.withOneThatStopsMeanwhile()
	r.durableAgain()
}

func publishOf(topic, key, body string) *connect.Request[notifyv1.PublishRequest] {
	return connect.NewRequest(&notifyv1.PublishRequest{IdempotencyKey: key, Message: &notifyv1.Message{Topic: topic, Body: []byte(body)}})
}

// outcome is why something was refused, or "" when it was not.
func outcome[T any](_ *connect.Response[T], err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(reason(err).String(), "REASON_")
}

func (s *stage) want(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// withoutAReplica: nothing is stored, and it works again when the replica is back.
func (s *replicatedStage) withoutAReplica() {
	t, m, ctx := s.t, s.m, s.t.Context()
	half := func() *notifyv1.PrepareResponse { return s.prepare(m, prepareOf("money", "half")) }
	committed, kept, rolledBack, other := half(), half(), half(), s.prepare(m, prepareOf("news", "half"))
	s.want("publish", outcome(m.Publish(ctx, publishOf("money", "", "1"))), "")
	s.want("commit", outcome(m.Commit(ctx, decideOf(committed.Handle))), "")
	stored := s.rows("message")

	s.replica.Stop()
	res, err := m.Publish(ctx, publishOf("money", "", "2"))
	s.want("publish without a replica", outcome(res, err), "STORE_AWAY")
	if err == nil || !strings.Contains(err.Error(), `topic "money" is replicated and no replica of store a acknowledges, nothing was stored`) {
		t.Errorf("the error does not say so: %v", err)
	}
	delayed := publishOf("money", "", "3")
	delayed.Msg.Message.DelayMs = 1000
	s.want("a delayed one", outcome(m.Publish(ctx, delayed)), "STORE_AWAY")
	s.want("one with a key", outcome(m.Publish(ctx, publishOf("money", "k", "4"))), "STORE_AWAY")
	s.want("prepare", outcome(m.Prepare(ctx, connect.NewRequest(prepareOf("money", "x")))), "STORE_AWAY")
	s.want("commit", outcome(m.Commit(ctx, decideOf(kept.Handle))), "STORE_AWAY")
	s.want("rollback", outcome(m.Rollback(ctx, decideOf(rolledBack.Handle))), "")
	row := insertOutbox(t, s.db, "money", "", "row")
	if n := s.rows("message"); n != stored {
		t.Errorf("%d messages were stored without a replica", n-stored)
	}
	s.want("publish of another topic", outcome(m.Publish(ctx, publishOf("news", "", "5"))), "")
	s.want("commit of another topic", outcome(m.Commit(ctx, decideOf(other.Handle))), "")
	s.want("a stream", s.onOneStream(m, "news", "money", "news"), "UNSPECIFIED STORE_AWAY BEHIND_FAILURE")
	insertOutbox(t, s.db, "news", "", "row")
	s.until("the outbox row of the other topic is relayed", func() bool { return s.rows("message") == stored+4 })
	s.want("rows that wait", fmt.Sprint(s.count("SELECT COUNT(*) FROM outbox")), "1")

	s.replica.Start()
	s.until("it works again", func() bool {
		return outcome(m.Commit(ctx, decideOf(kept.Handle))) == ""
	})
	s.want("publish with the replica back", outcome(m.Publish(ctx, publishOf("money", "k", "4"))), "")
	s.until("the row is relayed", func() bool { return s.count("SELECT COUNT(*) FROM outbox") == 0 })
	id := uuid.MustParse(row)
	if n := s.messagesOf(id); n != 1 {
		t.Errorf("the outbox row became %d messages", n)
	}
}

func (s *replicatedStage) durableAgain() {
	t := s.t
	_, answer := s.post(s.addr, "Admin/UpdateTopic", `{"name":"money","durability":"DURABILITY_DURABLE"}`)
	if fmt.Sprint(answer["topic"].(map[string]any)["durability"]) != "DURABILITY_DURABLE" {
		t.Errorf("UpdateTopic: %v", answer)
	}
	s.replica.Stop()
	s.want("publish when it is durable only", outcome(s.m.Publish(t.Context(), publishOf("money", "", "6"))), "")
}

func (s *stage) messagesOf(id uuid.UUID) (n int) {
	for i := range 8 {
		n += s.count(fmt.Sprintf("SELECT COUNT(*) FROM message_%02d WHERE id = UNHEX('%x')", i, id[:]))
	}
	return n
}

// withOneThatStopsMeanwhile: the server stops waiting for a replica that answers nothing, and stores the message nevertheless: only
// the answer can tell. A repeat is not acknowledged either before a replica has what it repeats.
func (s *replicatedStage) withOneThatStopsMeanwhile() {
	t, m, ctx := s.t, s.m, s.t.Context()
	half := s.prepare(m, prepareOf("money", "half"))

	s.cut.armed.Store(cutAfter)
	s.want("publish whose COMMIT's answer is lost", outcome(m.Publish(ctx, publishOf("money", "", "0"))), "RESULT_UNKNOWN")

	tries := 0
	s.until("the broker is the first to wait for the frozen replica", func() bool {
		s.until("it works", func() bool { return outcome(m.Publish(ctx, publishOf("money", "", "x"))) == "" })
		tries++
		s.replica.Freeze()
		got := outcome(m.Publish(ctx, publishOf("money", fmt.Sprint(tries), "1")))
		if got == "RESULT_UNKNOWN" {
			return true
		}
		s.want("publish when another commit has waited", got, "STORE_AWAY")
		s.replica.Thaw()
		return false
	})
	t.Cleanup(s.replica.Thaw)
	stored := s.rows("message")
	again := publishOf("money", fmt.Sprint(tries), "1")
	s.want("its repeat", outcome(m.Publish(ctx, again)), "STORE_AWAY")
	s.want("commit", outcome(m.Commit(ctx, decideOf(half.Handle))), "STORE_AWAY")
	if n := s.rows("message"); n != stored {
		t.Errorf("%d messages stored while no replica acknowledged", n-stored)
	}
	s.want("publish of another topic", outcome(m.Publish(ctx, publishOf("news", "", "2"))), "")

	s.replica.Thaw()
	s.until("the repeat is acknowledged, as one", func() bool {
		res, err := m.Publish(ctx, again)
		return err == nil && res.Msg.Duplicate
	})
	s.want("commit", outcome(m.Commit(ctx, decideOf(half.Handle))), "")
	s.want("the same commit", outcome(m.Commit(ctx, decideOf(half.Handle))), "")
	if n := s.rows("message"); n != stored+2 {
		t.Errorf("%d messages stored, want 2", n-stored)
	}
}

// onOneStream publishes to topics in one frame and returns the answers.
func (s *stage) onOneStream(m notifyv1connect.MessagingClient, topics ...string) string {
	s.t.Helper()
	stream := m.PublishStream(s.t.Context())
	defer stream.CloseResponse()
	req := &notifyv1.PublishStreamRequest{}
	for _, topic := range topics {
		req.Publishes = append(req.Publishes, publishOf(topic, "", topic).Msg)
	}
	if err := stream.Send(req); err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for len(got) < len(topics) {
		res, err := stream.Receive()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range res.Results {
			got = append(got, strings.TrimPrefix(r.GetError().GetReason().String(), "REASON_"))
		}
	}
	if err := stream.CloseRequest(); err != nil {
		s.t.Error(err)
	}
	return strings.Join(got, " ")
}

func TestAReplicatedTopicIsRefusedWhereTheServerWaitsForNoReplica(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "news", "g")
	for method, body := range map[string]string{
		"CreateTopic": `{"topic":{"name":"money","durability":"DURABILITY_REPLICATED"}}`,
		"UpdateTopic": `{"name":"news","durability":"DURABILITY_REPLICATED"}`,
	} {
		code, answer := s.post(addr, "Admin/"+method, body)
		text := fmt.Sprint(answer["message"])
		if code == http.StatusOK || !strings.Contains(text, "no semi-synchronous replication switched on: ") ||
			!strings.Contains(text, "SET GLOBAL rpl_semi_sync_") && !strings.Contains(text, "INSTALL PLUGIN rpl_semi_sync_source") {
			t.Errorf("%s: %d %v", method, code, answer)
		}
	}
}
