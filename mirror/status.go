package mirror

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// A State is what a Copier is doing.
type State string

const (
	// Idle: Run was not called yet, or has ended.
	Idle State = "idle"
	// Standby: another canald is active; this one takes over when that one is gone.
	Standby State = "standby"
	// Starting: joining the store's canalds, or taking over: initialising the transactional
	// id, reading and checking the checkpoint.
	Starting State = "starting"
	// Copying: the binlog stream is followed, or waits for its server to come back.
	Copying State = "copying"
	// Waiting: Kafka or the store is away, or Kafka refuses what it is given until somebody
	// mends it; tried again for ever.
	Waiting State = "waiting"
	// Halted: stopped; an operator is needed.
	Halted State = "halted"
)

// Report is the state of a canald: of each store, by name. It is what /status shows.
type Report struct {
	Stores []Status `json:"stores"`
}

// Status is a Copier's state, for people and for JSON.
type Status struct {
	// Store is the name in the configuration, StoreID the store's own.
	Store   string `json:"store"`
	StoreID string `json:"store_id,omitempty"`
	// ID is the name of this canald, Active that of the one that copies the store, empty
	// when that is not known.
	ID     string    `json:"canald"`
	Active string    `json:"active,omitempty"`
	State  State     `json:"state"`
	Since  time.Time `json:"since"`
	// Connected tells whether the binlog stream is open.
	Connected bool `json:"connected"`
	// Server, Flavor and Position say up to where the binlog is in Kafka.
	Server     string `json:"server,omitempty"`
	Flavor     string `json:"flavor,omitempty"`
	Position   string `json:"position,omitempty"`
	OpenGTID   string `json:"open_gtid,omitempty"`
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
	// Shards has the last pos of each shard, as epoch:n, with a + where a gap may follow.
	Shards []string `json:"shards,omitempty"`
	// Backfill is there while messages are copied from the store's tables.
	Backfill *Progress `json:"backfill,omitempty"`
	// LagSeconds is notify_mirror_lag_seconds, and so on; of what is not known, or infinite,
	// there is nothing.
	LagSeconds      float64  `json:"lag_seconds"`
	LagBytes        *int64   `json:"lag_bytes,omitempty"`
	FilesBefore     *int64   `json:"binlog_files_before_checkpoint,omitempty"`
	HeadroomSeconds *float64 `json:"binlog_headroom_seconds,omitempty"`
	// ClockSeconds is the server's clock minus this canald's.
	ClockSeconds float64 `json:"server_clock_ahead_seconds"`
	// CheckpointAt is when the last checkpoint was written.
	CheckpointAt time.Time `json:"checkpoint_at,omitzero"`
	// LastError is why the state is Waiting or Halted, or was so last.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// HaltedReason is set when the state is Halted, WaitingReason when it is Waiting until
	// somebody mends Kafka, and Repair says in both cases what to do.
	HaltedReason  Reason `json:"halted_reason,omitempty"`
	WaitingReason Reason `json:"waiting_reason,omitempty"`
	Repair        string `json:"repair,omitempty"`
	// Ahead names the messages that only the mirror holds, when it has halted for them.
	Ahead *Ahead `json:"ahead,omitempty"`
	// Notes are what an operator should know and need not mend.
	Notes []string `json:"notes,omitempty"`
}

// board holds the status that others may ask for.
type board struct {
	mu     sync.Mutex
	status Status
	at     checkpoint
}

// enter changes the state, and tells whether it was another.
func (b *board) enter(s State, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.State == s {
		return false
	}
	b.become(s, now)
	return true
}

// become changes the state; b.mu is held. What there was to repair is no more.
func (b *board) become(s State, now time.Time) {
	b.status.State, b.status.Since = s, now
	b.status.HaltedReason, b.status.WaitingReason, b.status.Repair, b.status.Ahead = "", "", "", nil
}

// takes says whose turn it is, if anybody's.
func (b *board) takes(id string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Active = id
	if b.status.State == Standby {
		b.become(Starting, now)
	}
}

// stands says that another canald is active, and tells whether that is news.
func (b *board) stands(active string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.State == Standby && b.status.Active == active {
		return false
	}
	b.become(Standby, now)
	b.status.Active = active
	return true
}

// halts notes that only a person can go on.
func (b *board) halts(h *Halt, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.become(Halted, now)
	b.status.LastError, b.status.LastErrorAt = h.Error(), now
	b.status.HaltedReason, b.status.Repair, b.status.Ahead = h.Reason, h.Repair, h.Ahead
}

// waits notes an error that is tried again, and tells whether it changed the state; o is nil
// for one that may go away by itself.
func (b *board) waits(err error, o *Obstacle, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.LastError, b.status.LastErrorAt = err.Error(), now
	before, reason := b.status.WaitingReason, Reason("")
	if b.status.State == Waiting && o == nil && before != "" {
		return false // it is still to be mended, and something else is wrong beside it
	}
	entered := b.status.State != Waiting
	if entered {
		b.become(Waiting, now)
	}
	if o != nil {
		reason = o.Reason
		b.status.WaitingReason, b.status.Repair = o.Reason, o.Repair
	}
	return entered || before != reason
}

// notes sets what an operator should know, and tells whether it is news.
func (b *board) notes(all []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Equal(b.status.Notes, all) {
		return false
	}
	b.status.Notes = all
	return len(all) > 0
}

// found notes the checkpoint that a start has read; saved will note the next.
func (b *board) found(c checkpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.Shards = slices.Clone(c.Shards)
	b.note(c)
}

// checkpoint is the last one in Kafka that is known.
func (b *board) checkpoint() (c checkpoint, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at, b.at.Generation > 0
}

// saved notes a checkpoint that is in Kafka; the board owns its memory.
func (b *board) saved(c checkpoint, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(c)
	b.status.CheckpointAt = now
}

// note takes over what a checkpoint says; b.mu is held.
func (b *board) note(c checkpoint) {
	b.at = c
	b.status.StoreID, b.status.Server, b.status.Flavor = c.Store, c.Server, c.Flavor
	b.status.Position, b.status.OpenGTID = c.GTIDs, c.OpenGTID
	b.status.Generation, b.status.Seq = c.Generation, c.Seq
	b.status.Backfill = c.Backfill.progress()
}

// spooled says how many messages of a backfill were read from the tables.
func (b *board) spooled(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Backfill = &Progress{Read: n}
}

// read is a copy of the status.
func (b *board) read() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Shards = make([]string, len(b.at.Shards))
	for i, pos := range b.at.Shards {
		s.Shards[i] = posText(pos)
	}
	return s
}

// measure fills in how far the mirror is behind.
func (s *Status) measure(l lagging) {
	s.LagSeconds, s.ClockSeconds = l.behind.Seconds(), l.clock.Seconds()
	if !math.IsNaN(l.bytes) {
		bytes, files := int64(l.bytes), int64(l.files)
		s.LagBytes, s.FilesBefore = &bytes, &files
	}
	if !math.IsInf(l.headroom, 0) {
		s.HeadroomSeconds = &l.headroom
	}
}

// ready is nil while the state is Copying and the binlog stream is open, and while another
// canald is active and this one ready to take over.
func (s Status) ready() error {
	switch {
	case s.State == Copying && s.Connected && s.Backfill == nil, s.State == Standby:
		return nil
	case s.State == Copying && s.Backfill != nil:
		return fmt.Errorf("mirror of store %s: backfill: %s", s.Store, s.Backfill)
	case s.State == Copying:
		return fmt.Errorf("mirror of store %s: the binlog stream is not open, and the mirror %.0f s behind: see its log for the cause", s.Store, s.LagSeconds)
	case s.LastError != "":
		return fmt.Errorf("mirror of store %s: %s: %s", s.Store, s.State, s.LastError)
	}
	return fmt.Errorf("mirror of store %s: %s", s.Store, s.State)
}
