package stream

import (
	"context"
	"errors"
	"iter"
)

// Records is Run as an iterator, for a Config without Handler: the records of all
// partitions as they come, those of each partition in order. A record is handled when
// the loop asks for the next one or ends. A last pair carries the error that Run would
// return, if there is one.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if c.cfg.Handler != nil || c.cfg.BatchHandler != nil {
			yield(Record{}, errors.New("stream: Handler: Records needs a Config without one"))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		turns := make(chan turn)
		var err error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err = c.run(ctx, oneByOne(func(work context.Context, r Record) error { return offer(ctx, work, turns, r) }))
		}()
		defer func() { cancel(); <-ended }()
		for {
			select {
			case t := <-turns:
				if !t.give(yield) {
					return
				}
			case <-ended:
				if err != nil {
					yield(Record{}, err)
				}
				return
			}
		}
	}
}

// turn is a record on its way to the loop over Records, which closes handled.
type turn struct {
	record  Record
	handled chan struct{}
}

// give runs the loop's body on the record, which is handled then, also if it breaks.
func (t turn) give(yield func(Record, error) bool) bool {
	defer close(t.handled)
	return yield(t.record, nil)
}

// offer waits until the loop has taken and handled a record. It gives up while the
// record is not taken when the iteration or the record's context ends.
func offer(iteration, work context.Context, turns chan<- turn, r Record) error {
	t := turn{r, make(chan struct{})}
	select {
	case turns <- t:
		<-t.handled
		return nil
	case <-iteration.Done():
	case <-work.Done():
	}
	return errNotTaken
}
