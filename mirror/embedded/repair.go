package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cleanFile is there while a directory was closed in order and not opened since.
const cleanFile = "clean"

// repairTimeout bounds the talk with a broker in this process.
const repairTimeout = 30 * time.Second

func markClean(dir string) error {
	return os.WriteFile(filepath.Join(dir, cleanFile), nil, 0o600)
}

// An openTxn is a transaction of a partition's log that has records and no marker.
type openTxn struct {
	topic     string
	partition int32
	producer  int64
	epoch     int16
}

// repair ends the transactions that a kill cut off: it writes the abort markers through
// a broker that only it knows, and closes that broker in order.
func repair(cfg Config) error {
	if _, err := os.Stat(filepath.Join(cfg.Dir, cleanFile)); err == nil {
		return nil
	}
	open, err := openTxns(cfg.Dir)
	if err != nil || len(open) == 0 {
		return err
	}
	cfg.Logger.Info("embedded kafka aborts transactions cut off by a kill", "partitions", len(open))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := ln.Addr().String()
	cluster, err := newCluster(cfg, ln)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return abort(addr, open)
}

// abort writes an abort marker for each transaction.
func abort(addr string, open []openTxn) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for _, o := range open {
		topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		topic.Topic, topic.Partitions = o.topic, []int32{o.partition}
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed = o.producer, o.epoch, false
		m.Topics = append(m.Topics, topic)
		req.Markers = append(req.Markers, m)
	}
	ctx, cancel := context.WithTimeout(client.Context(), repairTimeout)
	defer cancel()
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				err := kerr.ErrorForCode(p.ErrorCode)
				if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) { // deleted meanwhile
					return fmt.Errorf("abort marker for %s partition %d: %w", t.Topic, p.Partition, err)
				}
			}
		}
	}
	return nil
}

// openTxns finds the open transactions of all partitions in a data directory. The
// broker keeps a partition in partitions/<escaped topic>-<number>/<first offset>.dat,
// record batches one after another.
func openTxns(dir string) ([]openTxn, error) {
	parts, err := os.ReadDir(filepath.Join(dir, "partitions"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []openTxn
	for _, p := range parts {
		dash := strings.LastIndexByte(p.Name(), '-')
		if dash < 0 {
			continue
		}
		topic, err1 := url.PathUnescape(p.Name()[:dash])
		number, err2 := strconv.ParseInt(p.Name()[dash+1:], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		producers, err := openProducers(filepath.Join(dir, "partitions", p.Name()))
		if err != nil {
			return nil, fmt.Errorf("%s partition %d: %w", topic, number, err)
		}
		for producer, epoch := range producers {
			all = append(all, openTxn{topic, int32(number), producer, epoch})
		}
	}
	return all, nil
}

// openProducers are the producers, with their epochs, of a partition's open transactions.
func openProducers(dir string) (map[int64]int16, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".dat"); ok {
			if base, err := strconv.ParseInt(name, 10, 64); err == nil {
				bases = append(bases, base)
			}
		}
	}
	slices.Sort(bases)
	open := map[int64]int16{}
	for _, base := range bases {
		if err := scanSegment(filepath.Join(dir, strconv.FormatInt(base, 10)+".dat"), open); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// scanSegment follows the transactions through one file. Of each batch it reads
//
//	bytes  0..8   first offset
//	       8..12  length of what follows
//	      21..23  attributes: 0x10 transactional, 0x20 control (a marker)
//	      43..51  producer id
//	      51..53  producer epoch
//
// and stops at one that is cut off, as the broker does.
func scanSegment(path string, open map[int64]int16) error {
	const header, transactional, control = 61, 0x10, 0x20
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only: nothing is lost
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var b [header]byte
	for at := int64(0); ; {
		if _, err := f.ReadAt(b[:], at); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		at += 12 + int64(binary.BigEndian.Uint32(b[8:]))
		if at > info.Size() {
			return nil
		}
		producer := int64(binary.BigEndian.Uint64(b[43:]))
		switch attributes := binary.BigEndian.Uint16(b[21:]); {
		case attributes&control != 0:
			delete(open, producer)
		case attributes&transactional != 0:
			open[producer] = int16(binary.BigEndian.Uint16(b[51:]))
		}
	}
}
