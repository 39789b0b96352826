package client

import (
	"context"
	"fmt"
)

// Result is the answer for one message of a batch.
type Result struct {
	// Published is the broker's answer. Its ID is set also beside Err: a message
	// published again with that ID is recognised as a repeat.
	Published
	// Err is nil when the message is durable; otherwise as of Client.Publish.
	Err error
}

// PublishBatch stores messages in the order given and returns when each has its
// answer, results[i] that of ms[i]. One that is refused fails alone. The error is
// nil when all are durable; otherwise it counts the others and has the first one's
// error in its chain. When ctx ends first, messages without an answer have
// ReasonResultUnknown and may be stored.
//
// A batch may be of any size; ones of hundreds are as fast as a Publisher.
func (c *Client) PublishBatch(ctx context.Context, ms []Message) ([]Result, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	p := c.NewPublisher(PublisherConfig{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = p.runOn(ctx, c.batches) // every message gets the error
	}()
	defer func() {
		p.Close()
		<-ran
	}()
	return p.PublishBatch(ctx, ms)
}

// PublishBatch sends messages and waits for all their answers; see
// Client.PublishBatch.
func (p *Publisher) PublishBatch(ctx context.Context, ms []Message) ([]Result, error) {
	results := make([]Result, len(ms))
	type answer struct {
		i   int
		r   Published
		err error
	}
	answers := make(chan answer, len(ms))
	waiting := map[int]bool{}
	for i, m := range ms {
		err := nameMessage(&m)
		results[i].ID = m.ID
		if err == nil {
			err = p.Send(ctx, m, PublishOptions{}, func(r Published, err error) { answers <- answer{i, r, err} })
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		waiting[i] = true
	}
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			delete(waiting, a.i)
			results[a.i].Err = a.err
			if a.err == nil {
				results[a.i].Published = a.r
			}
		case <-ctx.Done():
			for i := range waiting {
				results[i].Err = unanswered(ctx.Err())
			}
			clear(waiting)
		}
	}
	return results, batchError(results)
}

// unanswered is the error of a message that was sent and not waited for.
func unanswered(cause error) error {
	return &Error{Reason: ReasonResultUnknown, Message: fmt.Sprintf("result unknown: %v before the broker answered, the message may be stored", cause), cause: cause}
}

func batchError(results []Result) error {
	bad := 0
	var first error
	for _, r := range results {
		if r.Err == nil {
			continue
		}
		if bad++; bad == 1 {
			first = r.Err
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d messages not known to be stored, the first: %w", bad, len(results), first)
}
