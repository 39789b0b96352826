package mirror

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"notifymirror/canal"
)

// probeLimit is how long a start may take to look at the last transaction copied. Where the
// server needs longer to find it the start goes on without: what identifies the server was
// compared before.
const probeLimit = 3 * time.Second

// FNV-1a, 64 bits.
const (
	hashStart = 14695981039346656037
	hashPrime = 1099511628211
)

// add takes a message into the fingerprint.
func (l *lastTxn) add(m message) {
	var b [26]byte
	binary.BigEndian.PutUint16(b[:], uint16(m.shard))
	binary.BigEndian.PutUint64(b[2:], uint64(m.pos))
	copy(b[10:], m.id[:])
	for _, x := range b {
		l.Hash = (l.Hash ^ uint64(x)) * hashPrime
	}
	l.Messages++
}

// sameMessages tells whether two fingerprints are of the same messages.
func (l lastTxn) sameMessages(o lastTxn) bool { return l.Messages == o.Messages && l.Hash == o.Hash }

// compareLast reads the last transaction that was copied once more and compares it with the
// checkpoint's fingerprint: a server that was restored and then went on, or that has another
// one's identity, may hold another transaction under the same GTID. It is read alone, over a
// connection of its own. One of which a part was copied is compared by the reader; one that
// is purged, or takes the server long to find, is not compared.
func (c *Copier) compareLast(ctx context.Context, at checkpoint) error {
	from, known := at.position().Before(at.Last.GTID)
	if !known {
		return nil
	}
	probe, cancel := context.WithTimeout(ctx, c.probeLimit)
	defer cancel()
	for t, err := range c.openProbe(from).txns(probe) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil, t.kind == canal.Heartbeat, t.gtid != at.Last.GTID:
			c.log.Debug("last transaction not compared", "gtid", at.Last.GTID, "err", err)
			return nil
		}
		found, err := c.fingerprint(t)
		if err == nil && !found.sameMessages(at.Last) {
			return otherMessages(at)
		}
		return nil // a row that cannot be read is the reader's affair
	}
	return ctx.Err()
}

// compareNext reads the transaction with messages that comes next, as compareLast does the last one,
// and tells why the mirror halts there for the order of pos; nil: it does not, as far as is known.
func (c *Copier) compareNext(ctx context.Context, at checkpoint) error {
	probe, cancel := context.WithTimeout(ctx, c.probeLimit)
	defer cancel()
	order, rows := newOrder(at.Shards), rowDecoder{schema: c.dsn.DBName}
	for t, err := range c.openProbe(at.position()).txns(probe) {
		switch {
		case err != nil, t.kind == canal.Heartbeat:
			c.log.Debug("next transaction not compared", "err", err)
			return nil
		case t.kind != canal.Rows:
			continue
		}
		copied := at.OpenCopied
		for row, err := range t.rows {
			if err != nil {
				return nil // the reader's affair, as below
			}
			m, err := rows.message(row)
			if err != nil {
				return nil
			}
			if copied > 0 {
				copied--
				continue
			}
			if order.copied(m.shard, m.pos) {
				continue
			}
			if err := order.take(m.shard, m.pos); err != nil {
				return fmt.Errorf("transaction %s: %w", t.gtid, err)
			}
		}
		return nil
	}
	return nil
}

// fingerprint reads a transaction's messages.
func (c *Copier) fingerprint(t txn) (lastTxn, error) {
	found := lastTxn{Hash: hashStart}
	rows := rowDecoder{schema: c.dsn.DBName}
	for row, err := range t.rows {
		if err != nil {
			return found, err
		}
		m, err := rows.message(row)
		if err != nil { // none of ours
			return lastTxn{}, nil
		}
		found.add(m)
	}
	return found, nil
}

// otherMessages is the halt for a server whose transaction is not the one that was copied.
func otherMessages(at checkpoint) *Halt {
	return haltf(ReasonServer, ErrServerChanged, serverRepair,
		"its transaction %s does not hold the messages that were copied from it: it was restored from a backup and went on, or it is another server; %s",
		at.Last.GTID, at.risk(ReasonServer))
}
