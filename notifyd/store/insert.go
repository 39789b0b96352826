package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/shard"
)

// An Item is one message to insert, one half to prepare, or one half to decide.
type Item struct {
	// Msg is nil for a decision, until the half was read.
	Msg *message.Message
	// IdempotencyKey, when not empty, makes a repeat store nothing.
	IdempotencyKey string
	Prepare        *Prepare
	Decide         *Decide
}

// plain reports whether the item is nothing but a row to insert.
func (it *Item) plain() bool { return it.IdempotencyKey == "" && it.Prepare == nil && it.Decide == nil }

// A Verdict is what became of an Item once its batch committed.
type Verdict struct {
	// Pos of the message, or 0 when it was not inserted.
	Pos shard.Pos
	// First is the id that stands in the store when Pos is 0: the first one under the
	// idempotency key, or that of the half.
	First uuid.UUID
	// Repeated: the same was stored, prepared or decided before.
	Repeated bool
	// Conflict: the key, or the half's id, was stored with another content.
	Conflict bool
	// Problem is ErrUnknownHalf, ErrDecidedOtherwise, ErrNotYours or the error of Insert.Admit.
	Problem error
}

// An Insert is one batch for one shard.
type Insert struct {
	Shard int
	Epoch int64
	Items []Item
	// Batch is a random number that no other transaction has.
	Batch int64
	// Window is how long an idempotency key is kept, microseconds.
	Window int64
	// Admit is asked about each half that would become a message; its error is the Problem of
	// that decision, and leaves the half as it is. nil admits all.
	Admit func(*message.Message) error
	// Mark makes a transaction that would only answer repeats write something. Replicas acknowledge by
	// place in the binlog, so the acknowledgement of that covers what is repeated.
	Mark bool
	// Begin gives the first of n positions, once, when n is known; not called for none.
	Begin func(n int) (shard.Pos, error)
}

// Insert stores a batch in one transaction and returns a verdict for each item. BornAt of
// each message is set. See Writer.write for its errors.
func (w *Writer) Insert(ctx context.Context, in *Insert) (Fence, []Verdict, error) {
	if len(in.Items) > 0 && !slices.ContainsFunc(in.Items, func(it Item) bool { return !it.plain() }) {
		return w.insertPlain(ctx, in)
	}
	verdicts := make([]Verdict, len(in.Items))
	fence, err := w.write(ctx, in.Shard, in.Epoch, func(ctx context.Context, f Fence) error {
		return w.insertMixed(ctx, in, f, verdicts)
	})
	return fence, verdicts, err
}

// insertMixed stores a batch of which something has to be read first.
func (w *Writer) insertMixed(ctx context.Context, in *Insert, f Fence, verdicts []Verdict) error {
	fresh, err := w.dedup(ctx, in, f.Now, verdicts)
	if err != nil {
		return err
	}
	h, err := w.readHalves(ctx, in)
	if err != nil {
		return err
	}
	for i := range in.Items {
		it := &in.Items[i]
		commits := false
		switch {
		case it.Decide != nil:
			verdicts[i], commits = h.decide(it, f.Now, in.Admit)
		case it.Prepare != nil:
			verdicts[i], err = h.prepare(in.Shard, it, f.Now)
		}
		if err != nil {
			return err
		}
		if commits {
			fresh = append(fresh, i)
		}
	}
	var s statements
	h.add(&s, in.Shard)
	if in.Mark && slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Repeated }) {
		s.addMark(in.Batch, f.Now)
	}
	if len(fresh) > 0 {
		slices.Sort(fresh)
		first, err := in.Begin(len(fresh))
		if err != nil {
			return fmt.Errorf("%w: %w", errSlot, err)
		}
		for n, i := range fresh {
			in.Items[i].Msg.BornAt = f.Now
			verdicts[i].Pos = first + shard.Pos(n)
		}
		if err := s.addRows(in, fresh, first, strconv.FormatInt(f.Now, 10)); err != nil {
			return err
		}
	}
	return w.exec(ctx, s.text.String(), s.args...)
}

// insertPlain stores a batch without idempotency keys in one round trip.
func (w *Writer) insertPlain(ctx context.Context, in *Insert) (Fence, []Verdict, error) {
	first, err := in.Begin(len(in.Items))
	if err != nil {
		return Fence{}, nil, fmt.Errorf("%w: %w", errSlot, err)
	}
	verdicts, all := make([]Verdict, len(in.Items)), make([]int, len(in.Items))
	for i := range in.Items {
		verdicts[i], all[i] = Verdict{Pos: first + shard.Pos(i)}, i
	}
	var s statements
	if err := s.addRows(in, all, first, now); err != nil {
		return Fence{}, nil, err
	}
	fence, err := w.once(ctx, in.Shard, guard{epoch: in.Epoch}, &s)
	switch {
	case errors.Is(err, errGuard):
		return fence, nil, fmt.Errorf("%w: %w", ErrFenced, err)
	case err != nil:
		return fence, nil, err
	}
	for _, it := range in.Items {
		it.Msg.BornAt = fence.Now
	}
	return fence, verdicts, nil
}

// addRows adds the INSERT of the given items. bornAt is an SQL expression. A delayed message
// gets the pending row by which it is exchanged later, in the same transaction.
func (s *statements) addRows(in *Insert, items []int, first shard.Pos, bornAt string) error {
	args := make([]any, 0, len(items)*(schema.MessageColumnCount-1))
	var delayed []any
	for n, i := range items {
		m := in.Items[i].Msg
		if m.DeliverAt != 0 {
			delayed = append(delayed, int64(first)+int64(n), shard.Delayed, m.DeliverAt, 0, "")
		}
		headers, body, err := content(m)
		if err != nil {
			return err
		}
		args = append(args, int64(first)+int64(n), m.ID[:], m.Topic, []byte(m.Key), headers, body, m.Mirrored)
	}
	row := "(" + strings.Repeat("?,", schema.MessageColumnCount-1) + bornAt + ")"
	s.add("INSERT INTO "+schema.Message(in.Shard)+" ("+schema.MessageColumnList+") VALUES "+
		strings.Repeat(row+",", len(items)-1)+row, args...)
	if len(delayed) > 0 {
		s.add("INSERT INTO "+schema.Pending(in.Shard)+" (pos, group_id, next_at, attempts, last_error) VALUES "+tuples(len(delayed)/5, 5), delayed...)
	}
	return nil
}

// addMark adds a row that means nothing: an idempotency key of no topic whose window is over.
func (s *statements) addMark(batch, now int64) {
	s.add("INSERT INTO dedup (topic, idempotency_key, id, body_hash, batch, expires_at) VALUES "+tuples(1, 6),
		"", strconv.FormatInt(batch, 16), uuid.Nil[:], make([]byte, message.HashSize), batch, now)
}

// content is what the columns headers and body hold: a JSON object of strings with sorted
// names, empty without headers; and the bytes, never NULL.
func content(m *message.Message) (headers, body []byte, err error) {
	headers, body = []byte{}, m.Body
	if all := m.StoredHeaders(); len(all) > 0 {
		headers, err = json.Marshal(all)
	}
	if body == nil {
		body = []byte{}
	}
	return headers, body, err
}

type dedupKey struct{ topic, key string }

// dedup decides which items are to be inserted: all without a key, and the first of each
// key that is new. Keys go in sorted, so that batches of different shards do not deadlock.
func (w *Writer) dedup(ctx context.Context, in *Insert, now int64, verdicts []Verdict) ([]int, error) {
	var fresh []int
	leaders := map[dedupKey]int{}
	var keyed []int
	for i, it := range in.Items {
		if it.plain() {
			fresh = append(fresh, i)
		}
		if it.IdempotencyKey == "" {
			continue
		}
		k := dedupKey{it.Msg.Topic, it.IdempotencyKey}
		if _, seen := leaders[k]; !seen {
			leaders[k] = i
			keyed = append(keyed, i)
		}
	}
	if len(keyed) == 0 {
		return fresh, nil
	}
	if err := w.insertKeys(ctx, in, keyed, now); err != nil {
		return nil, err
	}
	stored, err := w.readKeys(ctx, in, keyed)
	if err != nil {
		return nil, err
	}
	for i, it := range in.Items {
		if it.IdempotencyKey == "" {
			continue
		}
		k := dedupKey{it.Msg.Topic, it.IdempotencyKey}
		row, ok := stored[k]
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: idempotency key %q of topic %q vanished", errSlot, k.key, k.topic)
		case row.batch == in.Batch && leaders[k] == i:
			fresh = append(fresh, i)
		default:
			verdicts[i] = Verdict{First: row.id, Repeated: true, Conflict: row.hash != it.Msg.Hash()}
		}
	}
	slices.Sort(fresh)
	return fresh, nil
}

// insertKeys inserts the keys of the items, taking over expired ones; a key that lives stays as it is.
func (w *Writer) insertKeys(ctx context.Context, in *Insert, items []int, now int64) error {
	slices.SortFunc(items, func(a, b int) int {
		x, y := in.Items[a], in.Items[b]
		if c := strings.Compare(x.Msg.Topic, y.Msg.Topic); c != 0 {
			return c
		}
		return strings.Compare(x.IdempotencyKey, y.IdempotencyKey)
	})
	args := make([]any, 0, 6*len(items)+4)
	for _, i := range items {
		it := in.Items[i]
		hash := it.Msg.Hash()
		args = append(args, it.Msg.Topic, []byte(it.IdempotencyKey), it.Msg.ID[:], hash[:], in.Batch, now+in.Window)
	}
	args = append(args, now, now, now, now)
	_, err := w.conn.ExecContext(ctx, "INSERT INTO dedup (topic, idempotency_key, id, body_hash, batch, expires_at) VALUES "+
		tuples(len(items), 6)+` ON DUPLICATE KEY UPDATE
		id = IF(expires_at <= ?, VALUES(id), id),
		body_hash = IF(expires_at <= ?, VALUES(body_hash), body_hash),
		batch = IF(expires_at <= ?, VALUES(batch), batch),
		expires_at = IF(expires_at <= ?, VALUES(expires_at), expires_at)`, args...)
	return err
}

type dedupRow struct {
	id    uuid.UUID
	hash  [message.HashSize]byte
	batch int64
}

// readKeys reads the rows of items back, which are sorted by topic; the insert has locked them.
func (w *Writer) readKeys(ctx context.Context, in *Insert, items []int) (map[dedupKey]dedupRow, error) {
	out := make(map[dedupKey]dedupRow, len(items))
	for len(items) > 0 {
		topic := in.Items[items[0]].Msg.Topic
		n := 1
		for n < len(items) && in.Items[items[n]].Msg.Topic == topic {
			n++
		}
		if err := w.readTopicKeys(ctx, in, topic, items[:n], out); err != nil {
			return nil, err
		}
		items = items[n:]
	}
	return out, nil
}

func (w *Writer) readTopicKeys(ctx context.Context, in *Insert, topic string, items []int, out map[dedupKey]dedupRow) error {
	args := []any{topic}
	for _, i := range items {
		args = append(args, []byte(in.Items[i].IdempotencyKey))
	}
	rows, err := w.conn.QueryContext(ctx, "SELECT idempotency_key, id, body_hash, batch FROM dedup WHERE topic = ? AND idempotency_key IN "+
		tuples(1, len(items)), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key, id, hash []byte
		var r dedupRow
		if err := rows.Scan(&key, &id, &hash, &r.batch); err != nil {
			return err
		}
		copy(r.id[:], id)
		copy(r.hash[:], hash)
		out[dedupKey{topic, string(key)}] = r
	}
	return rows.Err()
}

// ForgetKeys deletes up to most idempotency keys whose window is over and returns how many.
func (s *Store) ForgetKeys(ctx context.Context, most int) (int64, error) {
	res, err := s.db.ExecContext(ctx, "DELETE FROM dedup WHERE expires_at < "+schema.NowMicros+" ORDER BY expires_at LIMIT ?", most)
	if err != nil {
		return 0, fmt.Errorf("expired idempotency keys: %w", err)
	}
	return res.RowsAffected()
}

// NewBatch makes a batch number of random bytes.
func NewBatch() int64 {
	id := uuid.New()
	return int64(binary.BigEndian.Uint64(id[8:]) >> 1)
}
