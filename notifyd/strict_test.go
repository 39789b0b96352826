package notifyd_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// newer gives a message a field that a program of a later version may know.
func newer[T proto.Message](m T) T {
	raw := protowire.AppendTag(nil, 1000, protowire.VarintType)
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(raw, 7))
	return m
}

func TestARequestOfANewerVersionIsRefusedAndNotHalfUnderstood(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "g")
	m, ctx := raw(addr), t.Context()
	message := func() *notifyv1.Message {
		return newer(&notifyv1.Message{Topic: "orders", Body: []byte("x")})
	}
	publish := connect.NewRequest(&notifyv1.PublishRequest{Message: message()})
	_, err := m.Publish(ctx, publish)
	s.want("publish by a newer client", outcome[notifyv1.PublishResponse](nil, err), "INVALID")
	if err == nil || !strings.Contains(err.Error(), "field 1000 of Message") || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("%v does not say what to do", err)
	}
	publish.Header().Set("Notify-Forwarded-By", "b")
	s.want("publish passed on by a newer broker", outcome(m.Publish(ctx, publish)), "UNAVAILABLE")
	s.want("prepare", outcome(m.Prepare(ctx, connect.NewRequest(&notifyv1.PrepareRequest{ProducerGroup: "shop", Message: message()}))), "INVALID")

	for by, want := range map[string]string{"": "INVALID", "b": "UNAVAILABLE"} {
		stream := m.PublishStream(ctx)
		stream.RequestHeader().Set("Notify-Forwarded-By", by)
		if err := stream.Send(&notifyv1.PublishStreamRequest{Publishes: []*notifyv1.PublishRequest{{Message: message()}}}); err != nil {
			t.Fatal(err)
		}
		res, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		s.want("in a stream of "+by, strings.TrimPrefix(res.Results[0].GetError().GetReason().String(), "REASON_"), want)
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	}

	err = s.admin(c, func(a notifyv1connect.AdminClient) error {
		_, err := a.PurgeDeadLetters(ctx, connect.NewRequest(&notifyv1.ChangeDeadLettersRequest{Filter: newer(&notifyv1.DeadLetterFilter{Group: "g"})}))
		return err
	})
	s.want("purge", outcome[notifyv1.PublishResponse](nil, err), "INVALID")
	if n := s.rows("message") + s.rows("half"); n != 0 {
		t.Errorf("%d messages were stored", n)
	}
	if code, answer := s.post(addr, "Messaging/Publish", `{"message":{"topic":"orders","delayMilis":"5000"}}`); code != http.StatusBadRequest || !strings.Contains(answer["message"].(string), "delayMilis") {
		t.Errorf("a misspelt field: %d %v", code, answer)
	}
}
