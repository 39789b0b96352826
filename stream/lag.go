package stream

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// watchLag measures the lag of the partitions held, until ctx ends.
func (c *Consumer) watchLag(ctx context.Context, log *kafkaLog) {
	tick := time.NewTicker(c.cfg.LagInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.measureLag(log, now)
		}
	}
}

// measureLag asks Kafka for the end of each partition held and sets the gauges. The
// lag in seconds is the time since the latest instant for which all committed before
// it is handled: the commit time of the last record handled, or the last moment at
// which there was none to handle. So it is right when nothing comes, and it grows
// while Kafka does not answer.
func (c *Consumer) measureLag(log *kafkaLog, now time.Time) {
	behind := map[string]time.Duration{} // by topic
	ids := map[string]string{}
	for _, p := range c.held.now() {
		if _, asked := ids[p.kafka]; !asked {
			ids[p.kafka], _ = log.topicID(p.kafka) // the next question is whether Kafka answers
		}
		p.known(ids[p.kafka])
		lag, err := p.measure(log, now)
		if err != nil {
			c.inTrouble(err)
		} else {
			c.wellAgain()
			c.held.whileHeld(p, func() {
				c.metrics.lagRecords.WithLabelValues(c.cfg.Group, p.topic, strconv.Itoa(int(p.number))).Set(float64(lag))
			})
		}
		if at := p.caughtUp.Load(); at > 0 {
			behind[p.topic] = max(behind[p.topic], now.Sub(time.Unix(0, at)))
		}
	}
	for _, topic := range c.topics {
		if lag, known := behind[topic]; known {
			c.metrics.lagSeconds.WithLabelValues(c.cfg.Group, topic).Set(lag.Seconds())
		} else {
			c.metrics.lagSeconds.DeleteLabelValues(c.cfg.Group, topic)
		}
	}
}

// known takes the id that the partition's topic has now; empty when it is not known. A topic that
// was deleted and made again may hold the offset that is read next: of another record.
func (p *partition) known(topicID string) {
	switch {
	case topicID == "":
	case p.madeAs == "":
		p.madeAs = topicID
	case p.madeAs != topicID:
		p.madeAs = topicID
		p.remade.Store(true)
	}
}

// measure is the number of records not handled yet. When only markers and aborted
// records are left, there is nothing to handle.
func (p *partition) measure(log *kafkaLog, now time.Time) (int64, error) {
	next := p.next.Load()
	end, err := log.offset(p.kafka, p.number, sarama.OffsetNewest, log.isolation)
	if err != nil {
		return 0, err
	}
	last, err := log.lastVisible(p.kafka, p.number, next, end)
	if err != nil {
		return 0, err
	}
	if last < next {
		p.caughtUpTo(now)
		return 0, nil
	}
	return last + 1 - next, nil
}

// PartitionLag is how far behind a partition is.
type PartitionLag struct {
	// Topic is notify's name.
	Topic     string
	Partition int32
	// Next is the offset of the next record to handle.
	Next int64
	// Records are not handled yet; markers among them count too. 0 when there is nothing
	// to handle.
	Records int64
	// Behind is the time since the latest instant for which all committed before it is
	// known to be handled, by the store's clock; 0 when none is known yet.
	Behind time.Duration
}

// Lag asks Kafka how far behind each partition is that is read at present, by topic and
// partition; none before Run and after it. It may be called at any time.
func (c *Consumer) Lag() ([]PartitionLag, error) {
	log := c.log.Load()
	if log == nil {
		return nil, nil
	}
	now := time.Now()
	var lags []PartitionLag
	for _, p := range c.held.now() {
		records, err := p.measure(log, now)
		if err != nil {
			return nil, err
		}
		l := PartitionLag{Topic: p.topic, Partition: p.number, Next: p.next.Load(), Records: records}
		if at := p.caughtUp.Load(); at > 0 {
			l.Behind = max(0, now.Sub(time.Unix(0, at)))
		}
		lags = append(lags, l)
	}
	slices.SortFunc(lags, func(a, b PartitionLag) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return lags, nil
}

// letGo ends what is said about a partition.
func (c *Consumer) letGo(p *partition) {
	c.held.remove(p)
	c.metrics.lagRecords.DeleteLabelValues(c.cfg.Group, p.topic, strconv.Itoa(int(p.number)))
}

// CaughtUp is the latest instant for which all that was committed before it is handled, in
// every partition that is read at present: records move it, and a look at Kafka, every
// LagInterval, when there is nothing to handle. It is zero while nothing is known. It stands
// still while Kafka does not answer; commit times are by the store's clock.
func (c *Consumer) CaughtUp() time.Time {
	var least int64
	for i, p := range c.held.now() {
		if at := p.caughtUp.Load(); i == 0 || at < least {
			least = at
		}
	}
	if least == 0 {
		return time.Time{}
	}
	return time.Unix(0, least)
}
