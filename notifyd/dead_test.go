package notifyd_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"notifymirror/notifyd"
	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
	"notifymirror/notifyd/client"
)

// A rawConsumer is an instance of a group without an SDK: the test answers each delivery.
type rawConsumer struct {
	s      *stage
	stream *connect.BidiStreamForClient[notifyv1.SubscribeRequest, notifyv1.SubscribeResponse]
	got    []*notifyv1.Delivery
}

func (s *stage) attach(addr, group string) *rawConsumer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	c := &rawConsumer{s: s, stream: raw(addr).Subscribe(ctx)}
	c.send(&notifyv1.SubscribeRequest{Attach: &notifyv1.Attach{Group: group}})
	if _, err := c.stream.Receive(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.close)
	return c
}

func (c *rawConsumer) close() {
	c.stream.CloseRequest()
	c.stream.CloseResponse()
}

func (c *rawConsumer) send(req *notifyv1.SubscribeRequest) {
	c.s.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.s.t.Fatal(err)
	}
}

// next is the next delivery.
func (c *rawConsumer) next() *notifyv1.Delivery {
	c.s.t.Helper()
	for len(c.got) == 0 {
		res, err := c.stream.Receive()
		if err != nil {
			c.s.t.Fatal(err)
		}
		c.got = res.GetDeliveries()
	}
	d := c.got[0]
	c.got = c.got[1:]
	return d
}

func (c *rawConsumer) nack(n *notifyv1.Nack) {
	c.s.t.Helper()
	c.send(&notifyv1.SubscribeRequest{Nacks: []*notifyv1.Nack{n}})
}

func (c *rawConsumer) ack(token []byte) {
	c.s.t.Helper()
	c.send(&notifyv1.SubscribeRequest{Acks: [][]byte{token}})
}

// dead reads one column of the dead letters of all shards, sorted.
func (s *stage) dead(column string) []string {
	s.t.Helper()
	var out []string
	for i := range 8 {
		rows, err := s.db.Query(fmt.Sprintf("SELECT %s FROM dead_letter_%02d", column, i))
		if err != nil {
			s.t.Fatal(err)
		}
		for rows.Next() {
			var v string
			if err := rows.Scan(&v); err != nil {
				s.t.Fatal(err)
			}
			out = append(out, v)
		}
		rows.Close()
	}
	slices.Sort(out)
	return out
}

const deadRow = "CONCAT_WS('|', reason, attempts, first_error, last_error)"

func TestARejectedDeliveryIsADeadLetterAtOnceAndItsMessageStays(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "stock", "mail")
	stock, mail := s.attach(addr, "stock"), s.attach(addr, "mail")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	stock.nack(&notifyv1.Nack{Token: stock.next().Token, Reject: true, Reason: "no such article", DelayMs: 1})
	mail.ack(mail.next().Token)
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	if got, want := s.dead(deadRow), []string{"rejected|1|rejected: no such article|rejected: no such article"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
	if n := s.rows("pending"); n != 0 {
		t.Errorf("%d pending rows beside it", n)
	}
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages, want the one that the dead letter needs", n)
	}
}

func TestARejectedRetryIsADeadLetterWithItsFirstAndLastError(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.RetryMin = notifyd.Duration(100 * time.Millisecond) })
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "one"})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "two"})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "three", Reject: true})
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 0 })
	if got, want := s.dead(deadRow), []string{"rejected|3|nack: one|rejected: three"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
}

func TestMaxAttemptsMakeADeadLetter(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.RetryMin = notifyd.Duration(100 * time.Millisecond)
		c.AckWait = notifyd.Duration(300 * time.Millisecond)
		c.MaxAttempts = 2
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "one"})
	if d := g.next(); d.Attempt != 2 {
		t.Errorf("attempt %d, want 2", d.Attempt)
	}
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 0 })
	if got, want := s.dead(deadRow), []string{"max_attempts|2|nack: one|no acknowledgement in time"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
}

func TestAnAttemptThatWasNeverSentDoesNotCount(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxAttempts = 1 })
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	id := s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	s.until("it waits for the group", func() bool { return s.rows("pending") == 1 })
	g := s.attach(addr, "stock")
	d := g.next()
	if d.Attempt != 1 || d.Message.Id != id {
		t.Errorf("attempt %d of %s, want the first of %s", d.Attempt, d.Message.Id, id)
	}
	g.ack(d.Token)
	s.until("acknowledged and gone", func() bool { return s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0 })
}

func TestAnOldDeliveryExpiresInsteadOfBeingTriedAgain(t *testing.T) {
	s := newStage(t)
	hour := func(c *notifyd.Config) { c.MaxAge = notifyd.Duration(time.Hour) }
	addr, stop := s.broker(hour)
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reason: "later", DelayMs: 3_600_000}) // beyond its age
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	g.close()
	s.until("detached", func() bool { return s.instances(addr, "stock") == 0 })
	s.publish(c, client.Message{Topic: "orders", Body: []byte("y")})
	s.until("it waits for the group", func() bool { return s.rows("pending") == 1 })
	stop()
	for i := range 8 { // a weekend later; a broker that had the message would not read it again
		if _, err := s.db.Exec(fmt.Sprintf("UPDATE message_%02d SET born_at = born_at - 3600000000", i)); err != nil {
			t.Fatal(err)
		}
	}
	addr, _ = s.broker(hour)
	s.attach(addr, "stock")
	s.until("a second dead letter", func() bool { return s.rows("dead_letter") == 2 && s.rows("pending") == 0 })
	if got, want := s.dead(deadRow), []string{"expired|0||", "expired|1|nack: later|nack: later"}; !slices.Equal(got, want) {
		t.Errorf("dead letters %q, want %q", got, want)
	}
}

func TestADelayAskedForTakesTheBackoffsPlaceUpToADay(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.RetryMin, c.RetryMax = notifyd.Duration(time.Hour), notifyd.Duration(time.Hour)
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, DelayMs: 50})
	d := g.next() // not after an hour
	if d.Attempt != 2 {
		t.Errorf("attempt %d, want 2", d.Attempt)
	}
	g.nack(&notifyv1.Nack{Token: d.Token, DelayMs: 4_000_000_000})
	day := "next_at BETWEEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 86000000000 AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 86400000000"
	s.until("it is due within a day", func() bool {
		n := 0
		for i := range 8 {
			n += s.count(fmt.Sprintf("SELECT COUNT(*) FROM pending_%02d WHERE attempts = 2 AND %s", i, day))
		}
		return n == 1
	})
}

func TestALateAckCompletesADeadLetterAndTakesTheMessageAlong(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) {
		c.RetryMin = notifyd.Duration(100 * time.Millisecond)
		c.AckWait = notifyd.Duration(300 * time.Millisecond)
		c.MaxAttempts = 1
	})
	c := s.client(addr)
	s.subscribe(c, "orders", "stock", "mail")
	stock := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	token := stock.next().Token
	s.until("a dead letter, and a row for the group that is away", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 1 })
	stock.ack(token)
	s.until("the dead letter is gone", func() bool { return s.rows("dead_letter") == 0 })
	if n := s.rows("message"); n != 1 {
		t.Errorf("%d messages; one group has not had it", n)
	}
	mail := s.attach(addr, "mail")
	token = mail.next().Token
	s.until("the other's dead letter", func() bool { return s.rows("dead_letter") == 1 && s.rows("pending") == 0 })
	mail.ack(token)
	s.until("nothing is left", func() bool { return s.rows("message")+s.rows("dead_letter")+s.rows("pending") == 0 })
}

func TestADeadLetterIsNotDeliveredAgainByTheNextOwner(t *testing.T) {
	s := newStage(t)
	addr, stop := s.broker(nil)
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("bad")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, Reject: true})
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	stop()
	for i := range 8 { // as if the owner had settled nothing since
		if _, err := s.db.Exec("UPDATE settled SET pos = 0 WHERE shard = ?", i); err != nil {
			t.Fatal(err)
		}
	}
	addr, _ = s.broker(nil)
	r := s.consume(s.client(addr), "stock", nil)
	good := s.publish(s.client(addr), client.Message{Topic: "orders", Body: []byte("good")})
	s.until("the next one comes", func() bool { return r.count() >= 1 && s.rows("message") == 1 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != 1 || r.got[good] != 1 {
		t.Errorf("delivered %v, want %s only", r.got, good)
	}
}

// admin is a client of a broker's administration without an SDK's retries.
func admin(addr string) notifyv1connect.AdminClient {
	return notifyv1connect.NewAdminClient(http.DefaultClient, "http://"+addr)
}

func (s *stage) listDead(a notifyv1connect.AdminClient, req *notifyv1.ListDeadLettersRequest) (all []*notifyv1.DeadLetter) {
	s.t.Helper()
	for {
		res, err := a.ListDeadLetters(s.t.Context(), connect.NewRequest(req))
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, res.Msg.GetDeadLetters()...)
		if req.After = res.Msg.GetNext(); req.After == "" {
			return all
		}
	}
}

// change calls a redrive or a purge until nothing is left to do, and wants no shard left out.
func (s *stage) change(call func(context.Context, *connect.Request[notifyv1.ChangeDeadLettersRequest]) (*connect.Response[notifyv1.ChangeDeadLettersResponse], error),
	req *notifyv1.ChangeDeadLettersRequest) (changed int) {
	s.t.Helper()
	for {
		res, err := call(s.t.Context(), connect.NewRequest(req))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, o := range res.Msg.GetShards() {
			if o.GetError() != "" {
				s.t.Errorf("shard %d: %s", o.GetShard(), o.GetError())
			}
		}
		changed += int(res.Msg.GetChanged())
		if req.BeforeUs = res.Msg.GetBeforeUs(); !res.Msg.GetMore() {
			return changed
		}
	}
}

// reject publishes n messages and lets the group reject each: n dead letters.
func (s *stage) reject(addr, topic, group string, n int) (ids []string) {
	s.t.Helper()
	before := s.rows("dead_letter")
	c := s.client(addr)
	g := s.attach(addr, group)
	for i := range n {
		ids = append(ids, s.publish(c, client.Message{Topic: topic, Key: fmt.Sprint(i), Body: fmt.Append(nil, group, i)}))
	}
	for range n {
		g.nack(&notifyv1.Nack{Token: g.next().Token, Reject: true, Reason: "bad"})
	}
	s.until("all are dead letters", func() bool { return s.rows("dead_letter") == before+n })
	g.close()
	s.until("detached", func() bool { return s.instances(addr, group) == 0 })
	return ids
}

func TestDeadLettersAreListedByGroupTopicReasonAndIDPageByPage(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "orders", "stock")
	s.subscribe(s.client(addr), "mails", "mail")
	orders := s.reject(addr, "orders", "stock", 7)
	mails := s.reject(addr, "mails", "mail", 5)
	a := admin(addr)
	for _, c := range []struct {
		filter *notifyv1.DeadLetterFilter
		want   []string
	}{
		{nil, append(slices.Clone(orders), mails...)},
		{&notifyv1.DeadLetterFilter{Group: "stock"}, orders},
		{&notifyv1.DeadLetterFilter{Topic: "mails"}, mails},
		{&notifyv1.DeadLetterFilter{Topic: "mails", Group: "stock"}, nil},
		{&notifyv1.DeadLetterFilter{Reason: "rejected"}, append(slices.Clone(orders), mails...)},
		{&notifyv1.DeadLetterFilter{Reason: "expired"}, nil},
		{&notifyv1.DeadLetterFilter{Ids: []string{mails[0], orders[3], orders[3]}}, []string{mails[0], orders[3]}},
	} {
		for _, limit := range []uint32{1, 3, 0} {
			var got []string
			for _, d := range s.listDead(a, &notifyv1.ListDeadLettersRequest{Filter: c.filter, Limit: limit}) {
				got = append(got, d.GetMessage().GetId())
				if d.Message.Body != nil || d.Reason != "rejected" || d.Attempts != 1 || d.LastError != "rejected: bad" || d.FirstError != d.LastError ||
					d.DeadAtUs == 0 || d.Message.BornAtUs == 0 || d.Store != "a" || (d.Group == "stock") != (d.Message.Topic == "orders") {
					t.Errorf("listed %v", d)
				}
			}
			want := slices.Sorted(slices.Values(c.want))
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%v, limit %d: %v, want %v", c.filter, limit, got, want)
			}
		}
	}
	one := s.listDead(a, &notifyv1.ListDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Ids: orders[:1]}, Bodies: true})
	if len(one) != 1 || string(one[0].Message.Body) != "stock0" || one[0].Message.Key != "0" {
		t.Errorf("shown: %v", one)
	}
}

func TestRedrivenMessagesKeepTheirIDAndPlaceAndAreNotInsertedAgain(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxAttempts = 2; c.RetryMin = notifyd.Duration(100 * time.Millisecond) })
	s.subscribe(s.client(addr), "orders", "stock")
	ids := s.reject(addr, "orders", "stock", 3)
	places := func() (out []string) {
		for i := range 8 {
			rows, err := s.db.Query(fmt.Sprintf("SELECT CONCAT(HEX(id), ':', pos) FROM message_%02d ORDER BY pos", i))
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var v string
				if err := rows.Scan(&v); err != nil {
					t.Fatal(err)
				}
				out = append(out, fmt.Sprint(i, " ", v))
			}
			rows.Close()
		}
		return out
	}
	before := places()
	if n := s.change(admin(addr).RedriveDeadLetters, &notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Ids: ids[:1]}}); n != 1 {
		t.Fatalf("%d redriven, want 1", n)
	}
	if after := places(); !slices.Equal(after, before) {
		t.Errorf("messages %v, before %v", after, before)
	}
	g := s.attach(addr, "stock")
	d := g.next()
	if d.Message.Id != ids[0] || d.Attempt != 1 {
		t.Errorf("attempt %d of %s, want the first of %s", d.Attempt, d.Message.Id, ids[0])
	}
	g.nack(&notifyv1.Nack{Token: d.Token, Reason: "still bad"}) // it has two attempts again
	if d = g.next(); d.Attempt != 2 {
		t.Errorf("attempt %d, want 2", d.Attempt)
	}
	g.nack(&notifyv1.Nack{Token: d.Token, Reason: "worse"})
	s.until("it is a dead letter again", func() bool { return s.rows("dead_letter") == 3 })
	if got, want := s.dead(deadRow)[0], "max_attempts|2|nack: still bad|nack: worse"; got != want {
		t.Errorf("dead letter %q, want %q", got, want)
	}
	if n := s.change(admin(addr).RedriveDeadLetters, &notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Group: "stock"}}); n != 3 {
		t.Errorf("%d redriven, want 3", n)
	}
	for range 3 {
		g.ack(g.next().Token)
	}
	s.until("nothing is left", func() bool { return s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0 })
}

func TestAnExpiredDeliveryIsDeliveredAfterItsRedrive(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(func(c *notifyd.Config) { c.MaxAge = notifyd.Duration(time.Hour) })
	c := s.client(addr)
	s.subscribe(c, "orders", "stock")
	g := s.attach(addr, "stock")
	s.publish(c, client.Message{Topic: "orders", Body: []byte("x")})
	g.nack(&notifyv1.Nack{Token: g.next().Token, DelayMs: 3_600_000})
	s.until("a dead letter", func() bool { return s.rows("dead_letter") == 1 })
	for i := range 8 {
		if _, err := s.db.Exec(fmt.Sprintf("UPDATE message_%02d SET born_at = born_at - 7200000000", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.change(admin(addr).RedriveDeadLetters, &notifyv1.ChangeDeadLettersRequest{All: true}); n != 1 {
		t.Fatalf("%d redriven, want 1", n)
	}
	g.nack(&notifyv1.Nack{Token: g.next().Token, DelayMs: 1}) // its age counts anew
	g.ack(g.next().Token)
	s.until("nothing is left", func() bool { return s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0 })
}

func TestAPurgeTakesTheMessageWithItsLastRow(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "orders", "stock", "away")
	s.reject(addr, "orders", "stock", 4)
	s.until("the other group's rows", func() bool { return s.rows("pending") == 4 })
	if n := s.change(admin(addr).PurgeDeadLetters, &notifyv1.ChangeDeadLettersRequest{All: true, DryRun: true}); n != 4 || s.rows("dead_letter") != 4 {
		t.Errorf("a dry run counted %d and left %d, want 4 and 4", n, s.rows("dead_letter"))
	}
	if n := s.change(admin(addr).PurgeDeadLetters, &notifyv1.ChangeDeadLettersRequest{All: true}); n != 4 {
		t.Errorf("%d purged, want 4", n)
	}
	if d, m := s.rows("dead_letter"), s.rows("message"); d != 0 || m != 4 {
		t.Errorf("%d dead letters and %d messages are left, want none and the 4 that another group has not had", d, m)
	}
	g := s.attach(addr, "away")
	for range 4 {
		g.nack(&notifyv1.Nack{Token: g.next().Token, Reject: true})
	}
	s.until("the other's dead letters", func() bool { return s.rows("dead_letter") == 4 })
	if n := s.change(admin(addr).PurgeDeadLetters, &notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Reason: "rejected"}}); n != 4 {
		t.Errorf("%d purged, want 4", n)
	}
	if n := s.rows("message") + s.rows("dead_letter") + s.rows("pending"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestARedriveAtAnyBrokerReachesTheOwnersOfAllShards(t *testing.T) {
	s := newStage(t)
	one, _ := s.broker(nil)
	s.subscribe(s.client(one), "orders", "stock")
	ids := s.reject(one, "orders", "stock", 40)
	two, _ := s.broker(nil)
	s.until("each owns half of the shards, and none moves any more", func() bool {
		return s.count("SELECT COALESCE(MAX(n), 0) FROM (SELECT COUNT(*) AS n FROM lease WHERE expires_at > 0 GROUP BY owner) x") == 4 &&
			s.count("SELECT COUNT(*) FROM lease WHERE expires_at > 0") == 8
	})
	a := admin(two)
	s.until("all are counted", func() bool {
		res, err := a.RedriveDeadLetters(t.Context(), connect.NewRequest(&notifyv1.ChangeDeadLettersRequest{All: true, DryRun: true}))
		return err == nil && res.Msg.GetChanged() == 40 && len(res.Msg.GetShards()) == 8
	})
	if n := s.change(a.RedriveDeadLetters, &notifyv1.ChangeDeadLettersRequest{All: true}); n != len(ids) {
		t.Errorf("%d redriven, want %d", n, len(ids))
	}
	r := s.consume(s.client(one, two), "stock", nil)
	s.until("all are delivered and nothing is left", func() bool {
		return r.count() == len(ids) && s.rows("message")+s.rows("pending")+s.rows("dead_letter") == 0
	})
}

func TestARedriveComesBackAtItsRate(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "orders", "stock")
	s.reject(addr, "orders", "stock", 30)
	if n := s.change(admin(addr).RedriveDeadLetters, &notifyv1.ChangeDeadLettersRequest{All: true, Rate: 8}); n != 30 {
		t.Fatalf("%d redriven, want 30", n)
	}
	for i := range 8 { // of 8 a second, one in each of 8 shards
		var rows, span int64
		if err := s.db.QueryRow(fmt.Sprintf("SELECT COUNT(*), COALESCE(MAX(next_at) - MIN(next_at), 0) FROM pending_%02d", i)).Scan(&rows, &span); err != nil {
			t.Fatal(err)
		}
		if rows > 0 && span != (rows-1)*1_000_000 {
			t.Errorf("%d deliveries of shard %d come within %d us, want one a second", rows, i, span)
		}
	}
}

func TestAChangeThatCannotBeDoneIsRefusedWithItsReason(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	s.subscribe(s.client(addr), "orders", "stock")
	for _, c := range []struct {
		req  *notifyv1.ChangeDeadLettersRequest
		want notifyv1.Reason
	}{
		{&notifyv1.ChangeDeadLettersRequest{}, notifyv1.Reason_REASON_INVALID},
		{&notifyv1.ChangeDeadLettersRequest{All: true, Filter: &notifyv1.DeadLetterFilter{Group: "stock"}}, notifyv1.Reason_REASON_INVALID},
		{&notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Group: "nobody"}}, notifyv1.Reason_REASON_UNKNOWN_GROUP},
		{&notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Reason: "bored"}}, notifyv1.Reason_REASON_INVALID},
		{&notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Ids: []string{"x"}}}, notifyv1.Reason_REASON_INVALID},
		{&notifyv1.ChangeDeadLettersRequest{All: true, Rate: 2_000_000}, notifyv1.Reason_REASON_TOO_LARGE},
	} {
		if _, err := admin(addr).PurgeDeadLetters(t.Context(), connect.NewRequest(c.req)); reason(err) != c.want {
			t.Errorf("%v: %v, want %v", c.req, err, c.want)
		}
	}
	if _, err := admin(addr).ListDeadLetters(t.Context(), connect.NewRequest(&notifyv1.ListDeadLettersRequest{After: "x"})); reason(err) != notifyv1.Reason_REASON_INVALID {
		t.Errorf("after: %v", err)
	}
}

func TestDeadLettersAreCountedForMetrics(t *testing.T) {
	s := newStage(t)
	registry := prometheus.NewRegistry()
	addr, _ := s.brokerWith(notifyd.Deps{Registerer: registry}, nil)
	s.subscribe(s.client(addr), "orders", "stock")
	gather := func(name string) (sum float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				for _, m := range f.Metric {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	ids := s.reject(addr, "orders", "stock", 6)
	s.until("they are counted", func() bool { return gather("notify_dead_letter_messages") == 6 })
	s.change(admin(addr).PurgeDeadLetters, &notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Ids: ids[:2]}})
	s.change(admin(addr).RedriveDeadLetters, &notifyv1.ChangeDeadLettersRequest{Filter: &notifyv1.DeadLetterFilter{Ids: ids[2:3]}})
	s.until("what left is not counted", func() bool { return gather("notify_dead_letter_messages") == 3 })
	if total, redriven := gather("notify_dead_letters_total"), gather("notify_dead_letters_redriven_total"); total != 6 || redriven != 1 {
		t.Errorf("%g made and %g redriven, want 6 and 1", total, redriven)
	}
}
