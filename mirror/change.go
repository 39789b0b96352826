package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"notifymirror/canal"
)

// A Change is what an operator wants of a store's checkpoint. Each but Grow begins a new generation.
type Change struct {
	// Store is its name in the configuration; it may be empty where there is one only.
	Store string `json:"store,omitempty"`
	What  What   `json:"what"`
	// Gap is the id of the gap to accept, as a dry run names it.
	Gap string `json:"gap,omitempty"`
	// Position is the GTIDs to set.
	Position string `json:"position,omitempty"`
	// Topic, as producers name it, is to have so many Partitions.
	Topic      string `json:"topic,omitempty"`
	Partitions int32  `json:"partitions,omitempty"`
	// All makes CopyTables copy what was copied before, too.
	All bool `json:"all,omitempty"`
	// DryRun only tells what would be skipped and repeated.
	DryRun bool `json:"dry_run,omitempty"`
}

// ParseChange reads the JSON of a Change. What it does not know is an error, so that a canald
// never makes half of what a later one would.
func ParseChange(body []byte) (c Change, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Change{}, fmt.Errorf("change: %w", err)
	}
	return c, nil
}

// What is the kind of a Change.
type What string

// The kinds of changes.
const (
	// AcceptGap goes on behind what made the mirror halt, where it can be read on.
	AcceptGap What = "accept-gap"
	// SetCheckpoint goes on from a position that the server has.
	SetCheckpoint What = "set"
	// ResetCheckpoint begins again with all that the server still has of the store.
	ResetCheckpoint What = "reset"
	// Grow has a topic's keys shared out over more partitions from now on.
	Grow What = "grow"
	// CopyTables copies what the store's tables hold behind the last messages copied, and
	// goes on with the binlog from there: a backfill.
	CopyTables What = "backfill"
)

// An Outcome is what a Change does, or would do.
type Outcome struct {
	Store string `json:"store"`
	What  What   `json:"what"`
	// Gap is the id to accept, Lost what is lost or at risk by the halt.
	Gap  string `json:"gap,omitempty"`
	Lost string `json:"lost,omitempty"`
	// Ahead names the messages that only the mirror holds, when it has halted for them.
	Ahead *Ahead `json:"ahead,omitempty"`
	// From and To are the positions before and after.
	From string `json:"from"`
	To   string `json:"to"`
	// Tables says which messages are copied from the store's tables.
	Tables string `json:"tables,omitempty"`
	// Skipped are the transactions that are never read, so that of their messages only those
	// in the tables are copied, if any are copied from there; Repeated those that are copied
	// again, with other notify-source and notify-seq and the same notify-id.
	Skipped  string `json:"skipped,omitempty"`
	Repeated string `json:"repeated,omitempty"`
	// Generation is the new one; the one before ends at Seq. Grow stays in the same one.
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
	// Grows is what Grow does.
	Grows *Growth `json:"grows,omitempty"`
	// Applied tells that the new checkpoint is in Kafka.
	Applied bool `json:"applied"`
}

// ErrChange is wrapped by every error of Change.
var ErrChange = errors.New("checkpoint not changed")

// errChanging ends a run so that the next one begins with a change.
var errChanging = errors.New("the checkpoint is to be changed")

// A change is one that waits for the next run.
type change struct {
	Change
	reason Reason // of the halt
	ahead  *Ahead
	out    Outcome
	err    error
	done   chan struct{}
	// end ends the Copier that has nothing else to do; nil: it goes on.
	end func()
	// withdrawn tells that nobody waits any more, begun that it is being written: never both.
	// Copier.changing guards them.
	withdrawn, begun bool
}

// wish makes a change of what is wanted of a mirror in that state.
func wish(what Change, s Status) *change {
	return &change{Change: what, reason: s.HaltedReason, ahead: s.Ahead, done: make(chan struct{})}
}

// finish tells who waits; the first word counts.
func (p *change) finish(err error) {
	if p == nil || p.out.Applied || p.err != nil {
		return
	}
	if p.err = err; err == nil {
		p.out.Applied = true
	}
	close(p.done)
	if p.end != nil {
		p.end()
	}
}

// Change changes the store's checkpoint between two Kafka transactions: the copying stops,
// and begins anew with a transaction that holds nothing but the new checkpoint. A Copier that
// has halted goes on by it once Run is called again, see AwaitChange. Only the active canald
// changes anything. The error wraps ErrChange. When ctx ends before the new checkpoint is being written,
// the change is withdrawn, and nothing comes of it; a write that has begun is waited for, which
// takes twice the TransactionTimeout at most.
func (c *Copier) Change(ctx context.Context, what Change) (Outcome, error) {
	s := c.Status()
	if s.State == Standby {
		return Outcome{}, fmt.Errorf("%w: %s is active for store %s: ask that one", ErrChange, s.Active, c.name)
	}
	if what.DryRun {
		return c.dryRun(ctx, what, s)
	}
	p := wish(what, s)
	if !c.propose(p) {
		return Outcome{}, fmt.Errorf("%w: another change is under way", ErrChange)
	}
	return c.await(ctx, p)
}

// await is the outcome of a proposed change. Whatever it returns, the change is not made later.
func (c *Copier) await(ctx context.Context, p *change) (Outcome, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		if c.withdraw(p) {
			return Outcome{}, fmt.Errorf("%w: it was withdrawn, and nothing comes of it: %w: %s", ErrChange, tooLate(ctx), c.waitsFor())
		}
		<-p.done
	}
	if p.err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", ErrChange, p.err)
	}
	if g := p.out.Grows; g != nil {
		c.log.Warn("partitions added by an operator", "topic", g.Topic, "from", g.From, "to", g.To, "generation", p.out.Generation, "seq", p.out.Seq)
		return p.out, nil
	}
	c.log.Warn("checkpoint changed by an operator", "what", p.What, "from", p.out.From, "to", p.out.To,
		"skipped", p.out.Skipped, "repeated", p.out.Repeated, "generation", p.out.Generation)
	return p.out, nil
}

func (c *Copier) dryRun(ctx context.Context, what Change, s Status) (Outcome, error) {
	if what.What == Grow {
		out, err := c.wouldGrow(ctx, what)
		if err != nil {
			return out, fmt.Errorf("%w: %w", ErrChange, err)
		}
		return out, nil
	}
	at, known := c.board.checkpoint()
	if !known {
		return Outcome{}, fmt.Errorf("%w: no checkpoint was read yet: %s", ErrChange, c.Status().LastError)
	}
	info, err := c.readStore(ctx)
	if err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", ErrChange, err)
	}
	_, out, err := c.plan(ctx, at, info, what, s.HaltedReason)
	out.names(s.Ahead)
	if err != nil {
		return out, fmt.Errorf("%w: %w", ErrChange, err)
	}
	return out, nil
}

// plan is plan of this store, for an account that may do it.
func (c *Copier) plan(ctx context.Context, at checkpoint, info storeInfo, what Change, reason Reason) (checkpoint, Outcome, error) {
	if what.What == CopyTables && c.compareLast(ctx, at) != nil {
		what.All = true // the server may have given the same pos again
	}
	if what.What == CopyTables && !what.All && reason == "" && !at.lost && !at.Backfill.pending() {
		if err := c.compareNext(ctx, at); err != nil { // the mirror halts there, or has halted when it ran
			return at, Outcome{Store: c.name, What: what.What}, fmt.Errorf("what is above the last messages copied is not all that the mirror lacks: copy all that the tables hold, with --all: %w", err)
		}
	}
	next, out, err := plan(at, info, what, reason)
	out.Store = c.name
	if err == nil && next.Backfill.Wanted {
		err = c.mayBackfill(ctx, info.shards)
	}
	return next, out, err
}

// propose leaves a change for the next run, and ends the one that goes on.
func (c *Copier) propose(p *change) bool {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.proposed != nil {
		return false
	}
	c.proposed = p
	if c.interrupt != nil {
		c.interrupt(errChanging)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return true
}

// tooLate is why a wait has ended.
func tooLate(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errors.New("not made in time")
}

// waitsFor says what keeps a change, or whoever waits for a halt.
func (c *Copier) waitsFor() string {
	s := c.Status()
	text := fmt.Sprintf("the mirror is %s", s.State)
	if n := c.looked.Load(); n > 0 {
		return fmt.Sprintf("%s, and looks through its topics for what it holds of the store, %d records so far; where no canald runs, --config waits for that", text, n)
	}
	if s.Position != "" {
		text += " at " + s.Position
	}
	if s.Backfill != nil {
		text += ", backfill: " + s.Backfill.String()
	}
	if s.LastError != "" {
		text += ": " + s.LastError
	}
	return text
}

// withdraw takes a change back, unless it is being written.
func (c *Copier) withdraw(p *change) bool {
	c.changing.Lock()
	defer c.changing.Unlock()
	if p.begun {
		return false
	}
	p.withdrawn = true
	if c.proposed == p {
		c.proposed = nil
	}
	return true
}

// begin tells whether a run may write its change, if it has one: nobody can take it back then.
func (c *Copier) begin(p *change) bool {
	c.changing.Lock()
	defer c.changing.Unlock()
	if p != nil {
		p.begun = !p.withdrawn
	}
	return p == nil || p.begun
}

// adopt gives the proposed change to the run that asks; nil when there is none.
func (c *Copier) adopt() *change {
	c.changing.Lock()
	defer c.changing.Unlock()
	p := c.proposed
	c.proposed = nil
	return p
}

// interruptible is a context for a run that a change may end.
func (c *Copier) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.changing.Lock()
	c.interrupt = cancel
	c.changing.Unlock()
	return ctx, func() { cancel(context.Canceled) }
}

// AwaitChange waits, after a Halt, until a change is proposed. False: ctx has ended.
func (c *Copier) AwaitChange(ctx context.Context) bool {
	for {
		c.changing.Lock()
		waits := c.proposed != nil
		c.changing.Unlock()
		if waits {
			return true
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// change makes the proposed change of the checkpoint just read, if there is one.
func (c *Copier) change(ctx context.Context, s *start) {
	p := c.adopt()
	if p == nil {
		return
	}
	if p.What == Grow {
		c.changeTopic(ctx, s, p)
		return
	}
	next, out, err := c.plan(ctx, s.at, s.info, p.Change, p.reason)
	out.names(p.ahead)
	if p.out = out; err != nil {
		p.finish(err)
		return // as if nobody had asked
	}
	s.at, s.change = next, p
}

// names completes an outcome by what the halt said.
func (o *Outcome) names(ahead *Ahead) {
	if o.Lost != "" && ahead != nil {
		o.Ahead = ahead
		o.Lost += "; " + ahead.String()
	}
}

// plan is the checkpoint that a change makes of another; reason is why the mirror has halted.
func plan(at checkpoint, info storeInfo, what Change, reason Reason) (checkpoint, Outcome, error) {
	next := checkpoint{
		Store: info.id, Generation: at.Generation + 1, Flavor: string(info.flavor),
		Shards: slices.Repeat([]int64{anyPos}, info.shards), Server: string(info.server),
	}
	out := Outcome{What: what.What, From: at.GTIDs, Generation: at.Generation + 1, Seq: at.Seq}
	to := canal.Position{Flavor: info.flavor, GTIDs: what.Position}
	var err error
	switch what.What {
	case AcceptGap:
		out.Gap, out.Lost = at.gap(reason), at.risk(reason)
		if to, err = behindGap(at, info, reason); err == nil && !what.DryRun && what.Gap != out.Gap {
			err = fmt.Errorf("the gap's id is %s, not %q: look what is lost before you accept it", out.Gap, what.Gap)
		}
	case SetCheckpoint:
		err = info.covers(to)
	case ResetCheckpoint:
		to, err = info.goOn(canal.Position{Flavor: info.flavor, GTIDs: info.installed})
	case CopyTables:
		to = info.position // until the snapshot gives the real one
		next.Backfill.Wanted = true
		out.Tables = "all that the store holds"
		if !what.All && at.leads(info, reason) {
			next.Shards = at.Shards
			out.Tables += " above the last ones copied"
		}
	default:
		err = fmt.Errorf("unknown change %q", what.What)
	}
	if err != nil {
		return at, out, err
	}
	if at.Backfill.pending() && what.What != CopyTables {
		out.Tables = "the backfill under way is given up: " + at.Backfill.progress().String()
	}
	out.To = to.GTIDs
	if out.Skipped, err = to.Minus(at.position()); err != nil {
		return at, out, err
	}
	if out.Repeated, err = at.position().Minus(to); err != nil {
		return at, out, err
	}
	switch {
	case what.What == AcceptGap && reason == ReasonAhead:
		out.Repeated = "" // the server has nothing of it
	case at.lost:
		out.From, out.Skipped, out.Repeated = "", "", "all of it that the mirror already holds, in generations up to "+strconv.FormatUint(at.Generation, 10)
	}
	next.GTIDs = to.GTIDs
	return next, out, nil
}

// leads tells that what a server's tables hold up to the checkpoint's pos is in the mirror:
// not so where another server, or an older copy of this one, may have given those again.
func (c *checkpoint) leads(info storeInfo, reason Reason) bool {
	if err := info.covers(c.position()); err != nil && !errors.Is(err, canal.ErrPurged) {
		return false
	}
	switch reason {
	case "", ReasonPurged, ReasonFileGone, ReasonRow, ReasonUnknownEvent:
		return c.Store == info.id && c.Server == string(info.server) && len(c.Shards) == info.shards
	}
	return false
}

// behindGap is where the mirror can go on after it has halted.
func behindGap(at checkpoint, info storeInfo, reason Reason) (canal.Position, error) {
	switch reason {
	case ReasonPurged, ReasonAhead, ReasonServer:
		return info.goOn(at.position())
	case ReasonOrder:
		return at.position(), nil // the pos check begins anew
	case ReasonFileGone, ReasonPastEnd, ReasonRow, ReasonUnknownEvent:
		return info.position, nil // nothing tells where it can be read again
	case "":
		return canal.Position{}, errors.New("the mirror has not halted, there is no gap")
	}
	return canal.Position{}, fmt.Errorf("the mirror has halted for %s, which is no gap: see its repair", reason)
}

// gap names what a halt at the checkpoint leaves out, so that nobody accepts another one than
// was shown.
func (c *checkpoint) gap(reason Reason) string {
	h := fnv.New32a()
	fmt.Fprintln(h, c.Store, c.Generation, c.Seq, c.GTIDs, c.OpenGTID, c.OpenCopied, reason)
	return fmt.Sprintf("gap-%08x", h.Sum32())
}
