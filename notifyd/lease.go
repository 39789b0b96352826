package notifyd

import (
	"context"
	"errors"
	"maps"
	"time"
)

func (k *keeper) leaseTime() time.Duration { return time.Duration(k.cfg.LeaseTime) }

// period is how often leases are renewed and looked at: five times within a lease.
func (k *keeper) period() time.Duration { return k.leaseTime() / 5 }

// every calls f at once and then each period.
func (k *keeper) every(ctx context.Context, f func(context.Context)) {
	t := time.NewTicker(k.period())
	defer t.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// renew prolongs the leases and says that the broker lives. It never waits for a takeover.
func (k *keeper) renew(ctx context.Context) {
	held := map[int]int64{}
	k.mu.Lock()
	owners := maps.Clone(k.leaving)
	maps.Copy(owners, k.owners)
	stop := k.stop
	k.mu.Unlock()
	for no, o := range owners {
		held[no] = o.epoch
	}
	ctx, cancel := context.WithTimeout(ctx, k.leaseTime())
	defer cancel()
	asked := time.Now()
	kept, err := k.st.Renew(ctx, k.self.ID, held, k.leaseTime())
	for _, no := range kept {
		owners[no].renewed(asked, k.leaseTime())
		delete(owners, no)
	}
	if err == nil {
		for _, o := range owners {
			o.lose()
		}
		if !stop { // after the farewell others count without this broker
			err = k.st.Heartbeat(ctx, k.self)
		}
	}
	k.reached(ctx, err)
}

// reached notes whether the store answers, with one log line per change.
func (k *keeper) reached(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	k.mu.Lock()
	was := k.away
	k.away = err != nil
	k.mu.Unlock()
	switch {
	case err != nil && !was:
		k.metrics.storeUp.WithLabelValues(k.st.Name).Set(0)
		k.log.Error("store away", "store", k.st.Name, "err", err)
	case err == nil:
		k.metrics.storeUp.WithLabelValues(k.st.Name).Set(1)
		if was {
			k.log.Info("store is back", "store", k.st.Name)
		}
	}
}

func (k *keeper) isAway() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.away
}
