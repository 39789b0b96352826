package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Outcome is what became of a transaction.
type Outcome struct {
	// ID is the message's.
	ID string
	// Local is how the local transaction ended.
	Local Decision
	// Decision is what the brokers hold. Unknown: not decided yet, as far as is
	// known; the half will be resolved by check-back.
	Decision Decision
	// Cause is why Decision is Unknown although Local is not: no broker answered
	// within DecideWait. It is for logs; nothing needs to be done.
	Cause error
}

// Transact prepares m, calls local, and commits or rolls back by its result. local
// runs the caller's own transaction and must record there, under h.ID, that it
// happened, since that is what the group's CheckListener answers from.
//
// local returns Commit when its transaction has committed, Rollback when it has not
// and never will, and Unknown when it cannot tell, such as after a lost connection
// at COMMIT: the half is then left to check-back. Commit beside an error counts as
// Unknown. If local panics, nothing is decided and the panic goes on.
//
// Once local has returned, the end of ctx has no influence: the decision is tried
// for DecideWait. If no broker can be reached, that is not an error of the
// transaction: Outcome.Decision is Unknown and check-back resolves the half.
//
// The error is
//
//   - that of Prepare (*Error), with a zero Outcome: local was not called;
//   - local's own, unchanged, whatever was decided;
//   - ErrDecidedOtherwise, when a check had been answered the other way: the local
//     transaction and the message disagree. It means that a check was answered
//     Rollback while local was still running, or from somewhere else than from what
//     local writes; see the package comment for how to rule that out;
//   - any other refusal of the decision, such as ErrUnknownHalf, with Outcome.Local
//     saying how the local transaction ended.
func (p *TransactionalProducer) Transact(ctx context.Context, m Message, local func(ctx context.Context, h Half) (Decision, error)) (Outcome, error) {
	h, err := p.Prepare(ctx, m)
	if err != nil {
		return Outcome{}, err
	}
	d, err := local(ctx, h)
	if d == Commit && err != nil || d != Commit && d != Rollback {
		d = Unknown
	}
	out := Outcome{ID: h.ID, Local: d}
	if d == Unknown {
		return out, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DecideWait)
	defer cancel()
	refused := p.decide(ctx, h, d)
	switch {
	case refused == nil:
		out.Decision = d
	case errors.Is(refused, ErrUndecided):
		out.Cause, refused = refused, nil
	case errors.Is(refused, ErrDecidedOtherwise):
		out.Decision = d.opposite()
	}
	switch {
	case err == nil:
		err = refused
	case refused != nil:
		err = errors.Join(err, refused)
	}
	return out, err
}

// TxBeginner begins a transaction: *sql.DB, *sql.Conn.
type TxBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// TransactSQL is Transact for a local transaction of database/sql: it begins it,
// calls local, and ends it. local only runs statements. When local returns an error
// both are rolled back and that error is returned; when it returns nil the local
// transaction is committed, then the message. An error of that COMMIT tells nothing
// about its outcome, so it leaves the half to check-back, as does a local that ended
// the transaction itself.
func (p *TransactionalProducer) TransactSQL(ctx context.Context, db TxBeginner, m Message, local func(ctx context.Context, tx *sql.Tx, h Half) error) (Outcome, error) {
	return p.Transact(ctx, m, func(ctx context.Context, h Half) (Decision, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return Rollback, fmt.Errorf("local transaction: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // for a panic; otherwise it has ended
		if err := local(ctx, tx, h); err != nil {
			// Done: by local, which may have committed, or by the end of ctx.
			if errors.Is(tx.Rollback(), sql.ErrTxDone) {
				return Unknown, err
			}
			return Rollback, err
		}
		if err := tx.Commit(); err != nil {
			return Unknown, fmt.Errorf("commit of the local transaction, outcome unknown: %w", err)
		}
		return Commit, nil
	})
}
