package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"notifymirror/cmd/daemon"
	"notifymirror/stream"
)

// positionForms are the forms of a position, for help.
const positionForms = "oldest, newest, an offset, a time such as 2026-11-29T14:00:00Z, how long ago, such as 15m or 7d, or a message's id"

// between reads the two ends of a range of a topic; to may be empty, for none.
func (a *app) between(ctx context.Context, from, to, topic, prefix string) (start, end stream.Position, err error) {
	now := time.Now()
	if t, err := at(from); err == nil && t.After(now) {
		return start, end, usageError(fmt.Errorf("--from: %s is in the future", from))
	}
	if start, err = a.position(ctx, from, now, topic, prefix); err != nil {
		return start, end, fmt.Errorf("--from: %w", err)
	}
	if to == "" {
		return start, end, nil
	}
	if end, err = a.position(ctx, to, now, topic, prefix); err != nil {
		return start, end, fmt.Errorf("--to: %w", err)
	}
	if end.Before(start) {
		return start, end, usageError(fmt.Errorf("--to: %s is before %s", to, from))
	}
	return start, end, nil
}

// position reads a place in a topic as people write it: as stream.ParsePosition does, or as a
// message's id. That is the place of the message's record in its partition, and in the others the
// time of its commit. The record is looked for in the mirror, from the id's time on.
func (a *app) position(ctx context.Context, text string, now time.Time, topic, prefix string) (stream.Position, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		p, err := stream.ParsePosition(text, now)
		if d, isSpan := parseSpan(text); err != nil && isSpan == nil { // in days
			return stream.AtTime(now.Add(-d)), nil
		}
		if err != nil {
			return p, usageError(errors.New(err.Error() + ", or a message's id"))
		}
		return p, nil
	}
	kafka, err := a.kafka.read()
	if err != nil {
		return stream.Position{}, err
	}
	s := search{kafka: kafka, prefix: prefix, topics: []string{topic}, from: time.Unix(0, 0), until: now.Add(searchMargin), dial: min(3*time.Second, a.timeout)}
	if id.Version() == 7 {
		sec, nsec := id.Time().UnixTime()
		s.from = time.Unix(sec, nsec).Add(-searchMargin)
	}
	found, searched := s.run(ctx, id)
	if found == nil {
		return stream.Position{}, daemon.WithExitCode(daemon.ExitNotFound, fmt.Errorf("message %s was not found: searched %s", id, searched[0]))
	}
	return stream.AtOffsets(map[int32]int64{found.Partition: found.Offset}, stream.AtTime(found.CommitTime)), nil
}
