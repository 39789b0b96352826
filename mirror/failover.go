package mirror

import (
	"context"
	"errors"
	"time"

	"notifymirror/canal"
)

// primaryEvery is how often the servers of a store are asked which of them accepts writes: one
// question to each, beside the survey. One that is demoted and replicates from the other still has
// every transaction; one that is gone is noticed by its silence.
const primaryEvery = time.Minute

// errMoved ends a run that reads from a server that is not the primary any more.
var errMoved = errors.New("another server of the store accepts writes than the one that is read")

// errElsewhere is in the halt for a stream that came from another server than its checkpoint: the
// primary changed between the two questions.
var errElsewhere = errors.New("another server is read than that of the checkpoint")

// follow lets a checkpoint go on at another server of the store's address: one that accepts
// writes now, has all that was copied, and holds the same messages in the last transaction that
// was. That begins a generation; the order of pos goes on, since nothing is missing in between.
//
//	server before   ...  97  98  99            copied: up to 99
//	promoted        ...  97  98  99  a  b      goes on with a
//	promoted        ...  97  a  b              is ahead by 98 and 99: halt, and name them
//
// A backfill under way is not gone on with at another server: that halts.
func (c *Copier) follow(ctx context.Context, s *start) error {
	at := s.at
	if !c.primary.Several() || at.Backfill.pending() || at.Store != s.info.id || at.Flavor != string(s.info.flavor) || at.Server == string(s.info.server) {
		return nil
	}
	if err := s.uncovered(); err != nil {
		return c.nameAhead(ctx, s, s.sourceError(err))
	}
	if err := c.compareLast(ctx, at); err != nil {
		return err
	}
	s.at.Generation, s.at.Seq, s.at.Server = at.Generation+1, 0, string(s.info.server)
	c.log.Warn("store has another primary, going on there", "server", s.at.Server, "server before", at.Server,
		"position", at.GTIDs, "generation", s.at.Generation, "last seq of the generation before", at.Seq)
	return nil
}

// uncovered tells why the server has not all that was copied, or not what comes next.
func (s *start) uncovered() error {
	copied, err := s.at.copied()
	if err != nil {
		return err
	}
	return s.info.covers(copied)
}

// copied is position with the transaction of which a part was copied.
func (c *checkpoint) copied() (canal.Position, error) {
	if c.OpenGTID == "" {
		return c.position(), nil
	}
	return c.position().With(c.OpenGTID)
}

// watchPrimary ends a run when the server that it reads from is not the only one that accepts writes.
// A server that was demoted, or stands beside the one that was promoted, still sends heartbeats, and
// would look idle.
func (c *Copier) watchPrimary(ctx context.Context, addr string, end context.CancelCauseFunc) {
	if !c.primary.Several() {
		return
	}
	tick := time.NewTicker(c.primaryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch now, err := c.primary.Find(ctx); {
		case isTwoPrimaries(err):
			end(err)
		case err == nil && now != addr:
			end(errMoved)
		}
	}
}

// movedFault is the fault of a run that a change of the primary ended: the next one follows it.
func (c *Copier) movedFault(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errMoved), isTwoPrimaries(cause):
		return cause
	case c.primary.Several() && (errors.Is(err, canal.ErrServerChanged) || errors.Is(err, errElsewhere)):
		return errMoved
	}
	return err
}
