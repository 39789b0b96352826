package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"notifymirror/mirror/record"
	"notifymirror/mirror/transact"
)

// abortGrace is how long a stop waits for a transaction to be aborted.
const abortGrace = 500 * time.Millisecond

// txnWriter writes the transactions of one partition, for one member of the group. After any
// error it is of no use: what became of the transaction is not known until another has
// initialised its id.
type txnWriter struct {
	of       transact.Member
	at       place
	conns    *transact.Cutter
	client   sarama.Client
	producer *transact.Producer
}

// An output is a record that a step writes.
type output struct {
	topic string
	// partition it goes to; byKey: the one that its key says, as the mirror's does.
	partition int32
	record    sarama.Record
}

const byKey = -1

// openWriter initialises a partition's transactional id.
func (p *Processor) openWriter(ctx context.Context, of transact.Member, at place) (w *txnWriter, err error) {
	id := p.cfg.Group + "/" + at.kafka + "/" + strconv.Itoa(int(at.number))
	// A dead member's open transaction keeps its offsets unstable, which holds up who
	// takes over: no longer than until Kafka takes the member for dead.
	timeout := p.c.cfg.SessionTimeout
	sc := p.c.cfg.sarama()
	sc.Net.ReadTimeout, sc.Net.WriteTimeout = timeout, timeout
	var dialer transact.Dialer = &net.Dialer{Timeout: sc.Net.DialTimeout, KeepAlive: sc.Net.KeepAlive, LocalAddr: sc.Net.LocalAddr}
	if sc.Net.Proxy.Enable {
		dialer = sc.Net.Proxy.Dialer
	}
	w = &txnWriter{of: of, at: at, conns: transact.NewCutter(dialer, timeout)}
	sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, w.conns
	if w.client, err = sarama.NewClient(p.cfg.Brokers, sc); err != nil {
		return nil, reachable(err)
	}
	if w.producer, err = transact.New(ctx, w.client, id, timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("transactional id %s: %w", id, err), w.client.Close())
	}
	return w, nil
}

// transaction writes records and the offset to go on at. Nil means that Kafka has committed
// them.
func (w *txnWriter) transaction(ctx context.Context, out []output, next int64, note string) error {
	now := time.Now().Truncate(time.Millisecond)
	for i := range out {
		o := &out[i]
		if o.partition == byKey {
			all, err := w.client.Partitions(o.topic)
			if err != nil {
				return fmt.Errorf("topic %s: %w", o.topic, err)
			}
			o.partition = record.Partition(o.record.Key, int32(len(all)))
		}
		w.producer.Send(transact.Partition{Topic: o.topic, Number: o.partition}, now, &o.record)
	}
	w.producer.Offset(w.of, transact.Partition{Topic: w.at.kafka, Number: w.at.number}, next, note)
	return w.producer.Commit(ctx)
}

// close ends the writer. A transaction whose end is not known is aborted, unless it has
// ended or another member has the partition: offsets of an open one are not stable, and who
// is given the partition next, often the same member, waits for that. It takes until ctx
// ends or Kafka has given the transaction up itself.
func (w *txnWriter) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.producer.Timeout())
	defer cancel()
	w.producer.Abort(ctx)
	w.conns.End()
	_ = w.client.Close()
	w.producer.Wait()
}
