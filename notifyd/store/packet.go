package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"notifymirror/notifyd/schema"
)

// now is the session variable that holds the store's clock for the rest of a packet.
const now = "@notify_now"

// statements are several statements with their arguments, to be sent as one text.
type statements struct {
	text strings.Builder
	args []any
}

func (s *statements) add(query string, args ...any) {
	s.text.WriteString(query)
	s.text.WriteByte(';')
	s.args = append(s.args, args...)
}

// A guard is what the fence must find, else nothing behind it runs.
type guard struct {
	epoch   int64
	version int64 // of the registry; 0: any
}

// condition is true for an epoch row e that is not the one expected.
func (g guard) condition() (string, []any) {
	if g.version == 0 {
		return "e.epoch <> ?", []any{g.epoch}
	}
	return "e.epoch <> ? OR e.registry_version <> ?", []any{g.epoch, g.version}
}

// errGuard is returned by once when the fence did not find what the guard asks for.
var errGuard = errors.New("the fence has changed")

// errPacket is returned when a packet's answer has not the form that it must have.
var errPacket = errors.New("unexpected answer of the store")

// once runs a whole fenced transaction of a shard in one round trip, as one packet of
// statements:
//
//	SET @notify_now = the store's clock
//	SELECT epoch, version, @notify_now, guard FROM epoch ... LOCK IN SHARE MODE
//	body                       may use @notify_now
//	SELECT 1                   tells that all before succeeded
//	COMMIT
//
// A server runs nothing of a packet behind a statement that is an error, and the guard is an
// error unless the row is as expected: a subquery of two rows where one may be. So what
// follows the fence runs under it, as when each statement waits for the answer to the one
// before. Errors are those of write, and errGuard; but for ErrUnknown it is rolled back.
//
// A transaction that was begun is not cancelled; what bounds it is the time limit of the
// connection's reads and writes. A context that may end would cost two goroutines a packet.
func (w *Writer) once(ctx context.Context, shard int, g guard, body *statements) (Fence, error) {
	ctx = context.WithoutCancel(ctx)
	condition, args := g.condition()
	var p statements
	p.add("SET " + now + " = " + schema.NowMicros)
	p.add("SELECT e.registry_version, "+now+", (SELECT 1 FROM (SELECT 1 UNION ALL SELECT 2) two WHERE "+condition+
		") FROM epoch e WHERE e.shard = ? LOCK IN SHARE MODE", append(args, shard)...)
	p.text.WriteString(body.text.String())
	p.args = append(p.args, body.args...)
	p.add("SELECT 1")
	p.text.WriteString("COMMIT")
	fence, committing, err := w.send(ctx, p.text.String(), p.args)
	switch {
	case err == nil:
		return fence, nil
	case committing:
		return fence, unknown(err)
	case hasCode(err, codeManyRows):
		err = fmt.Errorf("%w: %w", errGuard, err)
	}
	return fence, w.rollback(ctx, err)
}

// send sends a packet of once and reads all answers. committing tells that the server had
// come to the COMMIT.
func (w *Writer) send(ctx context.Context, text string, args []any) (f Fence, committing bool, err error) {
	rows, err := w.conn.QueryContext(ctx, text, args...)
	if err != nil {
		return f, false, err
	}
	defer rows.Close()
	if !rows.Next() {
		return f, false, errors.Join(rows.Err(), errPacket)
	}
	var guard *int
	if err := rows.Scan(&f.Version, &f.Now, &guard); err != nil {
		return f, false, err
	}
	if !rows.NextResultSet() || !rows.Next() {
		if err := rows.Err(); err != nil {
			return f, false, err
		}
		return f, false, errPacket
	}
	if rows.NextResultSet() {
		return f, true, errPacket
	}
	return f, true, errors.Join(rows.Err(), rows.Close())
}
