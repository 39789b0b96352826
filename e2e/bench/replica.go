package main

import (
	"context"
	"sync/atomic"

	"github.com/go-mysql-org/go-mysql/replication"
)

// beReplica reads the binlog over br.Readers connections, one if there are none, as fast as it
// can, and drops it undecoded. It says Done when br.Commits transactions have come over the
// first; at once when none are awaited.
func beReplica(ctx context.Context, br brief, say func(word) error) error {
	var left atomic.Int64
	left.Store(int64(br.Commits))
	all, failed := make(chan struct{}), make(chan error, 1)
	for i := range max(1, br.Readers) {
		end, err := replicate(ctx, br, uint32(i), failed, func(e *replication.BinlogEvent) {
			if i == 0 && e.Header.EventType == replication.XID_EVENT && left.Add(-1) == 0 {
				close(all)
			}
		})
		if err != nil {
			return err
		}
		defer end()
	}
	if br.Commits > 0 {
		select {
		case <-all:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := say(word{Done: true}); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// replicate opens one connection and calls take for each event.
func replicate(ctx context.Context, br brief, number uint32, failed chan<- error, take func(*replication.BinlogEvent)) (end func(), err error) {
	cfg, set, err := syncerConfig(br.DSN, br.GTID)
	if err != nil {
		return nil, err
	}
	cfg.ServerID += number
	cfg.RawModeEnabled, cfg.EventCacheCount = true, 1
	cfg.SynchronousEventHandler = eventHandler(take)
	syncer := replication.NewBinlogSyncer(cfg)
	stream, err := syncer.StartSyncGTID(set)
	if err != nil {
		syncer.Close()
		return nil, err
	}
	go func() {
		if _, err := stream.GetEvent(ctx); err != nil && ctx.Err() == nil {
			select {
			case failed <- err:
			default: // another one was first
			}
		}
	}()
	return syncer.Close, nil
}

// eventHandler is a function as go-mysql wants it.
type eventHandler func(*replication.BinlogEvent)

// HandleEvent implements replication.EventHandler.
func (h eventHandler) HandleEvent(e *replication.BinlogEvent) error {
	h(e)
	return nil
}
