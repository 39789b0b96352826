package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"notifymirror/notifyd/message"
	"notifymirror/notifyd/shard"
)

// ErrOutboxMoved is returned when an outbox row was not there any more. Nothing was written.
var ErrOutboxMoved = errors.New("an outbox row has gone")

// An OutboxRow is a message that an application inserted in its own transaction.
type OutboxRow struct {
	Seq int64
	Msg *message.Message
	// HeaderText is the headers column as the application wrote it.
	HeaderText []byte
	// Problem says why the row's headers cannot be read.
	Problem error
}

// OutboxRows reads committed rows behind a seq, but those of some topics, by seq: at most most of them and about
// 8 MiB. It waits for no lock: writers hold their transactions open as long as they like.
func (s *Store) OutboxRows(ctx context.Context, after int64, most int, but ...string) ([]OutboxRow, error) {
	where, args := "seq > ?", []any{after}
	if len(but) > 0 {
		where += " AND topic NOT IN " + tuples(1, len(but))
		for _, topic := range but {
			args = append(args, topic)
		}
	}
	rows, err := s.db.QueryContext(ctx, "SELECT seq, id, topic, msg_key, headers, body FROM outbox WHERE "+where+" ORDER BY seq LIMIT ?", append(args, most)...)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	defer rows.Close()
	var out []OutboxRow
	bytes := 0
	for rows.Next() && bytes < pageBytes {
		r, err := scanOutbox(rows)
		if err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		out = append(out, r)
		bytes += r.Msg.Size()
	}
	if bytes >= pageBytes {
		return out, nil
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return out, nil
}

// scanOutbox reads the columns of an outbox row, and what comes behind them into more.
func scanOutbox(rows *sql.Rows, more ...any) (OutboxRow, error) {
	r := OutboxRow{Msg: &message.Message{}}
	var id, key []byte
	dest := append([]any{&r.Seq, &id, &r.Msg.Topic, &key, &r.HeaderText, &r.Msg.Body}, more...)
	if err := rows.Scan(dest...); err != nil {
		return r, err
	}
	r.Msg.Key = string(key)
	copy(r.Msg.ID[:], id)
	if len(r.HeaderText) > 0 {
		if err := json.Unmarshal(r.HeaderText, &r.Msg.Headers); err != nil {
			r.Problem = fmt.Errorf("headers: not a JSON object of strings: %w", err)
		}
	}
	return r, nil
}

// Relay makes outbox rows messages in one transaction of a shard: it deletes the rows and
// inserts the messages, in the order of the rows. It returns ErrOutboxMoved when a row has gone.
// See Writer.write for its other errors.
func (w *Writer) Relay(ctx context.Context, no int, epoch int64, rows []OutboxRow, begin func(int) (shard.Pos, error)) (Fence, shard.Pos, error) {
	in := &Insert{Shard: no, Epoch: epoch}
	seqs, all := make([]int64, len(rows)), make([]int, len(rows))
	for i, r := range rows {
		in.Items = append(in.Items, Item{Msg: r.Msg})
		seqs[i], all[i] = r.Seq, i
	}
	var first shard.Pos
	fence, err := w.write(ctx, no, epoch, func(ctx context.Context, f Fence) error {
		if err := w.deleteOutbox(ctx, seqs); err != nil {
			return err
		}
		var err error
		if first, err = begin(len(rows)); err != nil {
			return fmt.Errorf("%w: %w", errSlot, err)
		}
		for _, r := range rows {
			r.Msg.BornAt = f.Now
		}
		var s statements
		if err := s.addRows(in, all, first, strconv.FormatInt(f.Now, 10)); err != nil {
			return fmt.Errorf("%w: %w", errSlot, err)
		}
		return w.exec(ctx, s.text.String(), s.args...)
	})
	return fence, first, err
}

func (w *Writer) deleteOutbox(ctx context.Context, seqs []int64) error {
	res, err := w.conn.ExecContext(ctx, "DELETE t FROM "+joinKeys("outbox", "seq", seqs))
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n != int64(len(seqs)) {
		return ErrOutboxMoved
	}
	return nil
}

// Reject moves an outbox row that cannot be a message to outbox_rejected, with the reason.
func (w *Writer) Reject(ctx context.Context, no int, epoch int64, r OutboxRow, reason string) error {
	_, err := w.write(ctx, no, epoch, func(ctx context.Context, f Fence) error {
		if err := w.deleteOutbox(ctx, []int64{r.Seq}); err != nil {
			return err
		}
		return w.exec(ctx, "INSERT INTO outbox_rejected (seq, id, topic, msg_key, headers, body, reason, rejected_at) VALUES "+tuples(1, 8),
			r.Seq, r.Msg.ID[:], r.Msg.Topic, []byte(r.Msg.Key), r.HeaderText, r.Msg.Body, clip(reason), f.Now)
	})
	return err
}

// A Rejected is an outbox row that could not be relayed.
type Rejected struct {
	OutboxRow
	Reason     string
	RejectedAt int64
}

// ListRejected lists rejected rows behind a seq, by seq, without their bodies.
func (s *Store) ListRejected(ctx context.Context, after int64, most int) ([]Rejected, error) {
	out, err := s.rejected(ctx, "''", "seq > ? ORDER BY seq LIMIT ?", after, most)
	if err != nil {
		return nil, fmt.Errorf("rejected outbox rows: %w", err)
	}
	return out, nil
}

// GetRejected reads one rejected row with its body, or returns ErrNoRejected.
func (s *Store) GetRejected(ctx context.Context, seq int64) (Rejected, error) {
	out, err := s.rejected(ctx, "body", "seq = ?", seq)
	if err == nil && len(out) == 0 {
		err = ErrNoRejected
	}
	if err != nil {
		return Rejected{}, fmt.Errorf("rejected outbox row %d: %w", seq, err)
	}
	return out[0], nil
}

func (s *Store) rejected(ctx context.Context, body, where string, args ...any) ([]Rejected, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT seq, id, topic, msg_key, headers, "+body+", reason, rejected_at FROM outbox_rejected WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Rejected
	for rows.Next() {
		var r Rejected
		if r.OutboxRow, err = scanOutbox(rows, &r.Reason, &r.RejectedAt); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// ErrNoRejected is returned when no rejected row has the seq.
var ErrNoRejected = errors.New("it is not there")

// Resubmit puts a rejected row back into the outbox, as its newest row.
func (s *Store) Resubmit(ctx context.Context, seq int64) error {
	tx, err := s.db.BeginTx(ctx, readCommitted())
	if err != nil {
		return fmt.Errorf("rejected outbox row %d: %w", seq, err)
	}
	defer tx.Rollback()
	res, err := tx.ExecContext(ctx, "INSERT INTO outbox (id, topic, msg_key, headers, body) SELECT id, topic, msg_key, headers, body FROM outbox_rejected WHERE seq = ? FOR UPDATE", seq)
	if err != nil {
		return fmt.Errorf("rejected outbox row %d: %w", seq, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("rejected outbox row %d: %w", seq, ErrNoRejected), err)
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM outbox_rejected WHERE seq = ?", seq); err != nil {
		return fmt.Errorf("rejected outbox row %d: %w", seq, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("rejected outbox row %d: %w", seq, err)
	}
	return nil
}
