package mirror

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/transact"
)

// groupProtocol is the name under which members share out the checkpoint partition.
const groupProtocol = "notify-mirror"

// A group is the consumer group of a store's canalds, as one member speaks to it. Its
// members subscribe to the checkpoint topic, whose one partition goes to the active one.
// They never read it through the group, so sarama's own consumer group, which does, and
// stops all members whenever one comes or goes, is of no use here.
//
// What a member says when it joins, and what it is told, is Kafka's own format for
// consumers, so Kafka's tools show who is who:
//
//	subscription  topics: the checkpoint topic   user data: the canald's name
//	              owned partitions, generation: its claim
//	assignment    partitions: 0, or none         user data: the active canald's name
//
// Its calls may block as long as an answer takes; cut ends them.
type group struct {
	name, topic string
	id          string // the canald's name
	session     time.Duration
	brokers     []string
	config      *sarama.Config
	conns       *transact.Cutter

	client sarama.Client
	member string // our id in the group, given by it
	lost   bool   // the coordinator may be another broker now
}

// newGroup connects nowhere.
func newGroup(c Config, storeID string, session time.Duration, d transact.Dialer) (*group, error) {
	conns := transact.NewCutter(d, time.Second)
	s, err := saramaConfig(c, conns)
	if err != nil {
		return nil, err
	}
	s.Net.ReadTimeout = session + 2*time.Second // joining may wait for others that long
	s.Net.WriteTimeout = s.Net.ReadTimeout
	s.Metadata.Retry.Max = 0
	return &group{
		name: c.Cluster + "/" + storeID, topic: checkpointTopic(storeID), id: c.ID,
		session: session, brokers: c.Kafka.Brokers, config: s, conns: conns,
	}, nil
}

// join enters the group, or enters it anew, and waits until everybody has; it returns the
// seat that was given. claim is seat.claim.
func (g *group) join(claim int32) (seat, error) {
	broker, err := g.coordinator()
	if err != nil {
		return outside, err
	}
	req := &sarama.JoinGroupRequest{
		Version: 5, GroupId: g.name, MemberId: g.member, ProtocolType: "consumer",
		SessionTimeout: int32(g.session.Milliseconds()), RebalanceTimeout: int32(g.session.Milliseconds()),
	}
	if err := req.AddGroupProtocolMetadata(groupProtocol, g.subscription(claim)); err != nil {
		return outside, fmt.Errorf("group %s: %w", g.name, err)
	}
	joined, err := broker.JoinGroup(req)
	if err == nil && errors.Is(joined.Err, sarama.ErrMemberIdRequired) {
		g.member = joined.MemberId
		req.MemberId = joined.MemberId
		joined, err = broker.JoinGroup(req)
	}
	if err == nil && joined.Err != sarama.ErrNoError {
		err = joined.Err
	}
	if err != nil {
		return outside, g.failed("join", broker, err)
	}
	g.member = joined.MemberId
	return g.sync(broker, joined)
}

// subscription is what we say of ourselves.
func (g *group) subscription(claim int32) *sarama.ConsumerGroupMemberMetadata {
	m := &sarama.ConsumerGroupMemberMetadata{Version: 2, Topics: []string{g.topic}, UserData: []byte(g.id), GenerationID: -1}
	if claim > 0 {
		m.GenerationID = claim
		m.OwnedPartitions = []*sarama.OwnedPartition{{Topic: g.topic, Partitions: []int32{0}}}
	}
	return m
}

// sync waits for the seats of a generation; the member that leads the group gives them.
func (g *group) sync(broker *sarama.Broker, joined *sarama.JoinGroupResponse) (seat, error) {
	asked := time.Now()
	req := &sarama.SyncGroupRequest{Version: 3, GroupId: g.name, GenerationId: joined.GenerationId, MemberId: g.member}
	if joined.LeaderId == joined.MemberId {
		if err := g.assign(req, joined); err != nil {
			return outside, fmt.Errorf("group %s: %w", g.name, err)
		}
	}
	synced, err := broker.SyncGroup(req)
	if err == nil && synced.Err != sarama.ErrNoError {
		err = synced.Err
	}
	if err != nil {
		return outside, g.failed("sync", broker, err)
	}
	given, err := synced.GetMemberAssignment()
	if err != nil {
		return outside, fmt.Errorf("group %s: assignment: %w", g.name, err)
	}
	return seat{
		generation: joined.GenerationId, active: slices.Contains(given.Topics[g.topic], 0),
		holder: string(given.UserData), confirmed: asked,
	}, nil
}

// assign elects the active member and tells everybody.
func (g *group) assign(req *sarama.SyncGroupRequest, joined *sarama.JoinGroupResponse) error {
	said, err := joined.GetMembers()
	if err != nil {
		return fmt.Errorf("a member's subscription: %w", err)
	}
	all := make([]candidate, 0, len(said))
	for member, m := range said {
		c := candidate{member: member}
		if len(m.OwnedPartitions) > 0 {
			c.claim = max(0, m.GenerationID)
		}
		all = append(all, c)
	}
	chosen := elect(all).member
	for member := range said {
		a := &sarama.ConsumerGroupMemberAssignment{Version: 1, UserData: said[chosen].UserData}
		if member == chosen {
			a.Topics = map[string][]int32{g.topic: {0}}
		}
		if err := req.AddGroupAssignmentMember(member, a); err != nil {
			return err
		}
	}
	return nil
}

// beat tells the group that we are there, in a generation.
func (g *group) beat(generation int32) error {
	broker, err := g.coordinator()
	if err != nil {
		return err
	}
	res, err := broker.Heartbeat(&sarama.HeartbeatRequest{Version: 3, GroupId: g.name, GenerationId: generation, MemberId: g.member})
	if err == nil && res.Err != sarama.ErrNoError {
		err = res.Err
	}
	if err != nil {
		return g.failed("heartbeat", broker, err)
	}
	return nil
}

// leave gives the seat up at once, so that nobody waits for it, and disconnects. It takes
// at most limit. It is a courtesy: a group that cannot be told notices by itself.
func (g *group) leave(limit time.Duration) {
	timer := time.AfterFunc(limit, g.conns.End)
	defer timer.Stop()
	if g.member != "" {
		g.disconnect() // what it had was cut, perhaps
		if broker, err := g.coordinator(); err == nil {
			_, _ = broker.LeaveGroup(&sarama.LeaveGroupRequest{
				Version: 3, GroupId: g.name, Members: []sarama.MemberIdentity{{MemberId: g.member}},
			})
		}
	}
	g.conns.End()
	g.disconnect()
}

func (g *group) disconnect() {
	if g.client != nil {
		_ = g.client.Close() // its connections are closed whatever it says
		g.client = nil
	}
}

// coordinator is the broker that keeps the group.
func (g *group) coordinator() (*sarama.Broker, error) {
	var err error
	if g.client == nil {
		if g.client, err = sarama.NewClient(g.brokers, g.config); err != nil {
			g.client = nil
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	if g.lost {
		if err := g.client.RefreshCoordinator(g.name); err != nil {
			return nil, fmt.Errorf("group %s: coordinator: %w", g.name, err)
		}
		g.lost = false
	}
	broker, err := g.client.Coordinator(g.name)
	if err != nil {
		return nil, fmt.Errorf("group %s: coordinator: %w", g.name, err)
	}
	return broker, nil
}

// failed notes what an error means for the next call, and gives it its place.
func (g *group) failed(op string, broker *sarama.Broker, err error) error {
	var code sarama.KError
	switch {
	case !errors.As(err, &code):
		_ = broker.Close() // a broken connection would be handed out again
		g.lost = true
	case errors.Is(code, sarama.ErrUnknownMemberId):
		g.member = ""
	case errors.Is(code, sarama.ErrNotCoordinatorForConsumer), errors.Is(code, sarama.ErrConsumerCoordinatorNotAvailable):
		g.lost = true
	}
	return fmt.Errorf("group %s: %s: %w", g.name, op, err)
}
