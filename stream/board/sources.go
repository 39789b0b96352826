package board

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// sourceInterval is how often the optional sources are asked, sourceTimeout how long for.
	sourceInterval = 500 * time.Millisecond
	sourceTimeout  = 2 * time.Second
	// sourceBytes bounds an answer, sourcePages the answers to one question.
	sourceBytes = 4 << 20
	sourcePages = 20
)

// mirrorState is what canalds say of one store.
type mirrorState struct {
	Store string `json:"store"`
	// State is copying, or what the store's mirror does instead.
	State string `json:"state"`
	// AsOf is the latest instant, ms since 1970, known to be wholly in Kafka; 0: not known.
	AsOf int64 `json:"as_of"`

	id string // the store's own, as records name it; empty: not known yet
}

// groupState is what brokers say of one group.
type groupState struct {
	Group string `json:"group"`
	// Waiting are deliveries that wait for a retry, InFlight those pushed and not acknowledged.
	Waiting  uint64 `json:"waiting"`
	InFlight uint64 `json:"in_flight"`
	// More: the brokers stopped counting.
	More bool `json:"more,omitempty"`
	Down bool `json:"down,omitempty"`
	// Old: a broker did not answer the last time, so this is from before.
	Old bool `json:"old,omitempty"`

	topics []string
}

// sources asks canalds and brokers, and remembers what they said last.
type sources struct {
	cfg    Config
	client *http.Client

	mu     sync.Mutex
	mirror []mirrorState
	groups []groupState
	silent []string // who did not answer the last time, and why
}

func newSources(cfg Config) *sources {
	return &sources{cfg: cfg, client: &http.Client{Timeout: sourceTimeout}}
}

// run asks until ctx ends.
func (s *sources) run(ctx context.Context) error {
	if len(s.cfg.Canald)+len(s.cfg.Notifyd) == 0 {
		return nil
	}
	tick := time.NewTicker(sourceInterval)
	defer tick.Stop()
	defer s.client.CloseIdleConnections()
	for {
		s.ask(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ask asks everybody once. Who does not answer changes nothing: what is known grows old.
func (s *sources) ask(ctx context.Context) {
	canalds := make([][]mirrorState, len(s.cfg.Canald))
	brokers := make([][]groupState, len(s.cfg.Notifyd))
	failed := make([]error, len(canalds)+len(brokers))
	var all sync.WaitGroup
	for i, address := range s.cfg.Canald {
		all.Go(func() { canalds[i], failed[i] = s.askCanald(ctx, address) })
	}
	for i, address := range s.cfg.Notifyd {
		all.Go(func() { brokers[i], failed[len(canalds)+i] = s.askBroker(ctx, address) })
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror = joinMirrors(s.mirror, slices.Concat(canalds...), errors.Join(failed[:len(canalds)]...) == nil)
	s.groups = groupsAfter(s.groups, slices.Concat(brokers...), errors.Join(failed[len(canalds):]...) != nil)
	s.silent = nil
	for i, err := range failed {
		switch {
		case err == nil:
		case i < len(canalds):
			s.silent = append(s.silent, "canald "+s.cfg.Canald[i]+" "+inShort(err))
		default:
			s.silent = append(s.silent, "notifyd "+s.cfg.Notifyd[i-len(canalds)]+" "+inShort(err))
		}
	}
}

// inShort is for people why there is no answer.
func inShort(err error) string {
	if refused, ok := errors.AsType[statusError](err); ok {
		return "answers " + string(refused)
	}
	return "does not answer"
}

// statusError is an HTTP status other than 200.
type statusError string

// Error implements error.
func (e statusError) Error() string { return "answer " + string(e) }

// groupsAfter is what is known of groups: a sum without one broker's part would be wrong, so
// then it is the last whole one, marked as old.
func groupsAfter(before, now []groupState, failed bool) []groupState {
	if !failed {
		return joinGroups(now)
	}
	old := slices.Clone(before)
	for i := range old {
		old[i].Old = true
	}
	return old
}

// joinMirrors is one state per store: a copying one before any other. What is known of an
// instant is never taken back. A store that nobody names any more is forgotten when all
// canalds have answered.
func joinMirrors(before, now []mirrorState, all bool) []mirrorState {
	byStore, named := map[string]mirrorState{}, map[string]bool{}
	for _, m := range before {
		m.State = "no answer"
		byStore[m.Store] = m
	}
	for _, m := range now {
		old := byStore[m.Store]
		if old.State == "copying" && m.State != "copying" {
			m.State = old.State
		}
		m.AsOf, m.id = max(m.AsOf, old.AsOf), cmp.Or(m.id, old.id)
		byStore[m.Store], named[m.Store] = m, true
	}
	out := make([]mirrorState, 0, len(byStore))
	for _, m := range byStore {
		if named[m.Store] || !all {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b mirrorState) int { return strings.Compare(a.Store, b.Store) })
	return out
}

// joinGroups adds up what the brokers say.
func joinGroups(all []groupState) []groupState {
	byName := map[string]groupState{}
	for _, g := range all {
		sum := byName[g.Group]
		sum.Group, sum.topics = g.Group, g.topics
		sum.Waiting += g.Waiting
		sum.InFlight += g.InFlight
		sum.More, sum.Down = sum.More || g.More, sum.Down || g.Down
		byName[g.Group] = sum
	}
	out := make([]groupState, 0, len(byName))
	for _, g := range byName {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b groupState) int { return strings.Compare(a.Group, b.Group) })
	return out
}

// mirrors is the state of each store, and who did not answer.
func (s *sources) mirrors() (stores []mirrorState, silent []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirror, s.silent
}

// groupsOf are the groups that have a topic.
func (s *sources) groupsOf(topic string) []groupState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []groupState
	for _, g := range s.groups {
		if slices.Contains(g.topics, topic) {
			out = append(out, g)
		}
	}
	return out
}

// askCanald reads a canald's /status.
func (s *sources) askCanald(ctx context.Context, address string) ([]mirrorState, error) {
	var answer struct {
		Stores []struct {
			Store      string  `json:"store"`
			StoreID    string  `json:"store_id"`
			State      string  `json:"state"`
			Connected  bool    `json:"connected"`
			LagSeconds float64 `json:"lag_seconds"`
		} `json:"stores"`
	}
	asked := time.Now()
	if err := s.get(ctx, http.MethodGet, "http://"+address+"/status", nil, &answer); err != nil {
		return nil, err
	}
	var out []mirrorState
	for _, st := range answer.Stores {
		m := mirrorState{Store: st.Store, State: st.State, id: st.StoreID}
		if st.State == "copying" && st.Connected {
			m.AsOf = asked.Add(-time.Duration(st.LagSeconds * float64(time.Second))).UnixMilli()
		}
		out = append(out, m)
	}
	return out, nil
}

// askBroker lists a broker's groups over its API, in JSON.
func (s *sources) askBroker(ctx context.Context, address string) ([]groupState, error) {
	var out []groupState
	next := ""
	for range sourcePages {
		var answer struct {
			Groups []struct {
				Name             string   `json:"name"`
				Topics           []string `json:"topics"`
				InFlight         uint64   `json:"inFlight,string"`
				Pending          uint64   `json:"pending,string"`
				PendingTruncated bool     `json:"pendingTruncated"`
				Down             bool     `json:"down"`
			} `json:"groups"`
			Next string `json:"next"`
		}
		question := map[string]string{"after": next}
		if err := s.get(ctx, http.MethodPost, "http://"+address+"/notify.v1.Admin/ListGroups", question, &answer); err != nil {
			return nil, err
		}
		for _, g := range answer.Groups {
			out = append(out, groupState{Group: g.Name, topics: g.Topics, Waiting: g.Pending, InFlight: g.InFlight, More: g.PendingTruncated, Down: g.Down})
		}
		if next = answer.Next; next == "" {
			break
		}
	}
	return out, nil
}

// get asks over HTTP and reads the JSON of the answer.
func (s *sources) get(ctx context.Context, method, url string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if question == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w", url, statusError(resp.Status))
	}
	return json.NewDecoder(io.LimitReader(resp.Body, sourceBytes)).Decode(answer)
}
