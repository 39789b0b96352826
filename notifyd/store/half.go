package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema"
)

// A Decision is what became of a half.
type Decision int8

const (
	// Undecided is the zero value.
	Undecided Decision = 0
	// Committed says that the half became a message.
	Committed Decision = 1
	// RolledBack says that the half is gone.
	RolledBack Decision = 2
)

// String is "commit", "rollback" or "undecided".
func (d Decision) String() string {
	switch d {
	case Committed:
		return "commit"
	case RolledBack:
		return "rollback"
	}
	return "undecided"
}

var (
	// ErrUnknownHalf is returned when a half was never prepared, or was decided longer ago
	// than decisions are kept.
	ErrUnknownHalf = errors.New("no such half message")
	// ErrDecidedOtherwise is returned when a half was decided the other way.
	ErrDecidedOtherwise = errors.New("half message decided otherwise")
	// ErrNotYours is returned when a half is another producer group's.
	ErrNotYours = errors.New("half message of another producer group")
)

// AskedByURL stands in the asked column in place of a group's name, which has no "@".
const AskedByURL = "@"

// A Prepare makes an Item a half.
type Prepare struct {
	Group string
	// CheckURL is asked instead of the group, when not empty.
	CheckURL string
	// CheckAfter is when it is asked about first, microseconds from now.
	CheckAfter int64
}

// A Decide makes an Item the decision of a half.
type Decide struct {
	// Shard holds the half.
	Shard int
	ID    uuid.UUID
	// Group must be the half's; empty: whoever's.
	Group    string
	Decision Decision
}

// A half row, locked.
type half struct {
	group string
	msg   *message.Message
}

// halves is what a batch's decisions and preparations found, by id, and what they change.
type halves struct {
	rows    map[uuid.UUID]map[int]half // by shard: a preparation tried twice may stand in two
	decided map[uuid.UUID]Decision

	gone      map[int][]uuid.UUID // half rows to delete, by shard
	decisions []any               // rows of half_decision
	prepared  []any               // rows of the batch's half table
}

// readHalves locks the halves that the batch decides or prepares, in one order, and reads the
// decisions taken before.
func (w *Writer) readHalves(ctx context.Context, in *Insert) (*halves, error) {
	h := &halves{rows: map[uuid.UUID]map[int]half{}, decided: map[uuid.UUID]Decision{}, gone: map[int][]uuid.UUID{}}
	byShard := map[int][]uuid.UUID{}
	var ids []uuid.UUID
	for _, it := range in.Items {
		switch {
		case it.Decide != nil:
			byShard[it.Decide.Shard] = append(byShard[it.Decide.Shard], it.Decide.ID)
			ids = append(ids, it.Decide.ID)
		case it.Prepare != nil:
			byShard[in.Shard] = append(byShard[in.Shard], it.Msg.ID)
			ids = append(ids, it.Msg.ID)
		}
	}
	if len(ids) == 0 {
		return h, nil
	}
	for _, no := range slices.Sorted(maps.Keys(byShard)) {
		if err := w.lockHalves(ctx, no, sortedIDs(byShard[no]), h); err != nil {
			return nil, err
		}
	}
	return h, w.readDecisions(ctx, sortedIDs(ids), h)
}

func sortedIDs(ids []uuid.UUID) []uuid.UUID {
	ids = slices.SortedFunc(slices.Values(ids), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

func (w *Writer) lockHalves(ctx context.Context, no int, ids []uuid.UUID, h *halves) error {
	rows, err := w.conn.QueryContext(ctx, "SELECT t.producer_group, t.id, t.topic, t.msg_key, t.headers, t.body, t.mirrored, t.prepared_at FROM "+
		joinIDs(schema.Half(no), ids)+" FOR UPDATE")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var x half
		if x.msg, err = scanMessage(rows, &x.group); err != nil {
			return err
		}
		if h.rows[x.msg.ID] == nil {
			h.rows[x.msg.ID] = map[int]half{}
		}
		h.rows[x.msg.ID][no] = x
	}
	return rows.Err()
}

func (w *Writer) readDecisions(ctx context.Context, ids []uuid.UUID, h *halves) error {
	rows, err := w.conn.QueryContext(ctx, "SELECT t.id, t.decision FROM "+joinIDs("half_decision", ids))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var raw []byte
		var d Decision
		if err := rows.Scan(&raw, &d); err != nil {
			return err
		}
		id, err := uuid.FromBytes(raw)
		if err != nil {
			return err
		}
		h.decided[id] = d
	}
	return rows.Err()
}

// decide gives the verdict of one decision, in the order of the batch. commits is true when the item
// becomes a message, which admit lets it, and whose content is then in it.
func (h *halves) decide(it *Item, now int64, admit func(*message.Message) error) (v Verdict, commits bool) {
	d := it.Decide
	row, found := h.rows[d.ID][d.Shard]
	taken := h.decided[d.ID]
	switch {
	case found && d.Group != "" && row.group != d.Group:
		return Verdict{Problem: fmt.Errorf("%w: it was prepared by %q", ErrNotYours, row.group)}, false
	case taken != Undecided && found: // prepared twice: the other copy was decided
		h.drop(d)
	}
	switch {
	case taken == Undecided && !found:
		return Verdict{Problem: ErrUnknownHalf}, false
	case taken != Undecided && taken != d.Decision:
		return Verdict{Problem: fmt.Errorf("%w: %s", ErrDecidedOtherwise, taken)}, false
	case taken != Undecided:
		return Verdict{First: d.ID, Repeated: true}, false
	}
	if d.Decision == Committed && admit != nil {
		if err := admit(row.msg); err != nil {
			return Verdict{Problem: err}, false
		}
	}
	h.drop(d)
	h.decisions = append(h.decisions, d.ID[:], d.Decision, now)
	h.decided[d.ID] = d.Decision
	it.Msg = row.msg
	return Verdict{First: d.ID}, d.Decision == Committed
}

func (h *halves) drop(d *Decide) {
	h.gone[d.Shard] = append(h.gone[d.Shard], d.ID)
	delete(h.rows[d.ID], d.Shard)
}

// add adds the statements of all verdicts given. no is the batch's shard.
func (h *halves) add(s *statements, no int) {
	for _, shard := range slices.Sorted(maps.Keys(h.gone)) {
		s.add("DELETE t FROM " + joinIDs(schema.Half(shard), sortedIDs(h.gone[shard])))
	}
	if n := len(h.decisions) / 3; n > 0 {
		s.add("INSERT INTO half_decision (id, decision, decided_at) VALUES "+tuples(n, 3), h.decisions...)
	}
	if n := len(h.prepared) / preparedColumns; n > 0 {
		s.add("INSERT INTO "+schema.Half(no)+" (id, producer_group, topic, msg_key, headers, body, mirrored, asked, check_url,"+
			" prepared_at, next_check_at, checks, parked) VALUES "+tuples(n, preparedColumns), h.prepared...)
	}
}

const preparedColumns = 13

// prepare gives the verdict of one preparation. One that is there already stays as it is.
func (h *halves) prepare(no int, it *Item, now int64) (Verdict, error) {
	m, p := it.Msg, it.Prepare
	if d := h.decided[m.ID]; d != Undecided {
		return Verdict{Problem: fmt.Errorf("%w: %s", ErrDecidedOtherwise, d)}, nil
	}
	if row, ok := h.rows[m.ID][no]; ok {
		if row.group != p.Group || row.msg.Topic != m.Topic || row.msg.Hash() != m.Hash() {
			return Verdict{First: m.ID, Conflict: true}, nil
		}
		return Verdict{First: m.ID, Repeated: true}, nil
	}
	headers, body, err := content(m)
	if err != nil {
		return Verdict{}, err
	}
	asked := p.Group
	if p.CheckURL != "" {
		asked = AskedByURL
	}
	h.prepared = append(h.prepared, m.ID[:], p.Group, m.Topic, []byte(m.Key), headers, body, m.Mirrored, asked, p.CheckURL, now, now+p.CheckAfter, 0, 0)
	if h.rows[m.ID] == nil {
		h.rows[m.ID] = map[int]half{}
	}
	h.rows[m.ID][no] = half{group: p.Group, msg: m}
	return Verdict{First: m.ID}, nil
}

// ForgetDecisions deletes up to most decisions taken more than keep microseconds ago. One of
// which a second copy of the half is still there stays: without it the copy could be decided again.
func (s *Store) ForgetDecisions(ctx context.Context, keep int64, most int) (int64, error) {
	copies := ""
	for no := range s.Shards {
		copies += " AND NOT EXISTS (SELECT 1 FROM " + schema.Half(no) + " h WHERE h.id = half_decision.id)"
	}
	res, err := s.db.ExecContext(ctx, "DELETE FROM half_decision WHERE decided_at < "+schema.NowMicros+" - ?"+copies+" ORDER BY decided_at LIMIT ?", keep, most)
	if err != nil {
		return 0, fmt.Errorf("old decisions: %w", err)
	}
	return res.RowsAffected()
}
