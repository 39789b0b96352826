package shard

import "slices"

// A Lease is one shard's lease row.
type Lease struct {
	Shard int
	Epoch int64
	// Owner is the broker's id; empty when nobody ever owned the shard.
	Owner string
	// ExpiresAt by the store's clock, microseconds since 1970 UTC; 0: released.
	ExpiresAt int64
	// Void tells that it was given at another server: the store's primary is a new one.
	Void bool
}

// Free reports whether another broker may take the shard at now.
func (l Lease) Free(now int64) bool { return l.Void || l.ExpiresAt <= now }

// Moves is what a broker should do next to spread shards evenly.
type Moves struct {
	// Take are free shards up to the broker's share.
	Take []int
	// Release is one shard above its share, or -1. One at a time, so that the
	// rest of the key space stays where it is.
	Release int
}

// Balance decides the next moves of the broker self. live names the live brokers, with or
// without self; held are the shards that self owns in memory.
func Balance(self string, leases []Lease, live []string, held []int, now int64) Moves {
	brokers := len(live)
	if !slices.Contains(live, self) {
		brokers++
	}
	share := (len(leases) + brokers - 1) / brokers
	m := Moves{Release: -1}
	for _, l := range leases {
		if len(held)+len(m.Take) >= share {
			break
		}
		if l.Free(now) && !slices.Contains(held, l.Shard) {
			m.Take = append(m.Take, l.Shard)
		}
	}
	if len(held) > share {
		m.Release = slices.Max(held)
	}
	return m
}
