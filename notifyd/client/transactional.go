package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"

	notifyv1 "notifymirror/notifyd/api/notify/v1"
	"notifymirror/notifyd/api/notify/v1/notifyv1connect"
)

// TransactionalConfig is a transactional producer's configuration; the zero value
// of each optional field is its default.
type TransactionalConfig struct {
	// Group is the producer group: it alone may decide its halves, and its
	// CheckListeners are asked about those that nobody decided. It need not be
	// declared. 1 to 127 bytes of [A-Za-z0-9._-]. Required.
	Group string
	// CheckAfter is when a half that nobody decided is asked about first. It should
	// be longer than the longest local transaction. Default: the topic's setting, or
	// else the broker's, 30 s unless configured otherwise.
	CheckAfter time.Duration
	// CheckURL is asked by POST instead of the group's CheckListeners. At most
	// 1,000 bytes, http or https. Default: the listeners are asked.
	CheckURL string
	// DecideWait is how long Transact and TransactSQL try to reach a broker with
	// the decision before they leave it to check-back. Default 5 s.
	DecideWait time.Duration
	// Window is the most decisions of CommitAsync and RollbackAsync that may wait.
	// Default 8192.
	Window int
	// Concurrency is how many of them are on their way at once. Default 64: a
	// broker decides those that meet in one transaction.
	Concurrency int
}

// TransactionalProducer publishes messages that belong to a local transaction: both
// happen or neither. It is safe for concurrent use.
//
//	prepare -> local transaction -> commit or rollback
//	                             -> neither arrives: a CheckListener of the group is asked
//
// Transact and TransactSQL do the three steps; Prepare, Commit and Rollback are
// the steps themselves. Only CommitAsync and RollbackAsync need Run.
type TransactionalProducer struct {
	c    *Client
	cfg  TransactionalConfig
	room *semaphore.Weighted
	work chan struct{} // holds one token when Run should look again

	mu     sync.Mutex
	queue  []pendingDecision
	closed bool
	ended  bool // Run has returned
}

// NewTransactionalProducer returns a transactional producer; Run drives its
// asynchronous decisions.
func (c *Client) NewTransactionalProducer(cfg TransactionalConfig) (*TransactionalProducer, error) {
	if cfg.Group == "" {
		return nil, errors.New("producer group: missing")
	}
	if cfg.CheckAfter < 0 || millis(cfg.CheckAfter) > math.MaxUint32 {
		return nil, fmt.Errorf("check after %s: want 0 to %s", cfg.CheckAfter, time.Duration(math.MaxUint32)*time.Millisecond)
	}
	setDefault(&cfg.DecideWait, 5*time.Second)
	setDefault(&cfg.Window, 8192)
	setDefault(&cfg.Concurrency, 64)
	return &TransactionalProducer{c: c, cfg: cfg, room: semaphore.NewWeighted(int64(cfg.Window)), work: make(chan struct{}, 1)}, nil
}

// Prepare stores a half and returns when it is durable. The id is made here unless
// m has one, so that a Prepare that is tried again is the same half; failures that
// a retry may mend are retried for Config.Patience. After an error the half may be
// there all the same: nobody commits it, and a check about it finds no local
// transaction. Errors are *Error.
func (p *TransactionalProducer) Prepare(ctx context.Context, m Message) (Half, error) {
	if err := nameMessage(&m); err != nil {
		return Half{}, err
	}
	if err := checkText(m, ""); err != nil {
		return Half{}, err
	}
	req := &notifyv1.PrepareRequest{
		Message: m.proto(), ProducerGroup: p.cfg.Group, CheckAfterMs: uint32(millis(p.cfg.CheckAfter)), CheckUrl: p.cfg.CheckURL,
	}
	var h Half
	err := p.c.retry(ctx, repeatable, func(addr string) error {
		resp, err := p.c.messaging(p.c.http, addr).Prepare(ctx, connect.NewRequest(req))
		if err != nil {
			return callError(addr, err)
		}
		h = Half{ID: resp.Msg.GetId(), Handle: resp.Msg.GetHandle()}
		return nil
	})
	return h, err
}

// Commit makes the half an ordinary message. It is tried again, at any broker, for
// Config.Patience: the same decision is answered alike for 24 h. The first decision
// wins, whoever took it. Errors have in their chain
//
//   - ErrDecidedOtherwise: the half was rolled back before;
//   - ErrUnknownHalf: it was never prepared, or was decided more than 24 h ago;
//   - ErrNotYours: it is another producer group's;
//   - ErrUndecided: no answer came in time or before ctx ended. The decision may
//     have been taken; if not, check-back resolves the half.
func (p *TransactionalProducer) Commit(ctx context.Context, h Half) error {
	return p.decide(ctx, h, Commit)
}

// Rollback removes the half; its rules and errors are those of Commit.
func (p *TransactionalProducer) Rollback(ctx context.Context, h Half) error {
	return p.decide(ctx, h, Rollback)
}

func (p *TransactionalProducer) decide(ctx context.Context, h Half, d Decision) error {
	call := notifyv1connect.MessagingClient.Commit
	if d == Rollback {
		call = notifyv1connect.MessagingClient.Rollback
	}
	req := &notifyv1.DecideRequest{Handle: h.Handle, ProducerGroup: p.cfg.Group}
	err := p.c.retry(ctx, repeatable, func(addr string) error {
		_, err := call(p.c.messaging(p.c.http, addr), ctx, connect.NewRequest(req))
		return callError(addr, err)
	})
	var e *Error
	if err == nil || errors.As(err, &e) && e.permanent() {
		return err
	}
	return fmt.Errorf("%w: %s of %s: %w", ErrUndecided, d, h.ID, err)
}
