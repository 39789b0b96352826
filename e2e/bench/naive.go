package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/go-sql-driver/mysql"

	"notifymirror/notifyd/schema"
)

// naiveTransaction is how many messages the naive pipeline puts into a Kafka transaction.
const naiveTransaction = 10_000

// beNaive is what one would write first: the library's decoded rows, one after the other,
// into a transactional producer. It keeps no checkpoint and checks nothing.
func beNaive(ctx context.Context, br brief, say func(word) error) error {
	p, err := naiveProducer(br.Brokers)
	if err != nil {
		return err
	}
	defer p.Close()
	dsn, err := mysql.ParseDSN(br.DSN)
	if err != nil {
		return err
	}
	stream, end, err := naiveStream(br.DSN, br.GTID)
	if err != nil {
		return err
	}
	defer end()
	for done := 0; done < br.Messages; {
		ev, err := stream.GetEvent(ctx)
		if err != nil {
			return err
		}
		rows, ok := ev.Event.(*replication.RowsEvent)
		if !ok || string(rows.Table.Schema) != dsn.DBName {
			continue
		}
		if _, ok := schema.ParseMessage(string(rows.Table.Table)); !ok {
			continue
		}
		if done, err = naiveRows(p, rows.Rows, done, br.Messages); err != nil {
			return err
		}
	}
	if err := say(word{Done: true}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// naiveRows sends rows, and commits whenever a transaction is full or the last row was sent.
func naiveRows(p sarama.AsyncProducer, rows [][]any, done, all int) (int, error) {
	for _, r := range rows {
		if done%naiveTransaction == 0 {
			if err := p.BeginTxn(); err != nil {
				return done, err
			}
		}
		p.Input() <- &sarama.ProducerMessage{
			Topic: topicName,
			Key:   sarama.StringEncoder(fmt.Sprint(r[schema.MessageKey])),
			Value: sarama.ByteEncoder(r[schema.MessageBody].([]byte)),
			Headers: []sarama.RecordHeader{
				{Key: []byte("id"), Value: []byte(fmt.Sprint(r[schema.MessageID]))},
				{Key: []byte("born-at"), Value: []byte(fmt.Sprint(r[schema.MessageBornAt]))},
				{Key: []byte("seq"), Value: strconv.AppendInt(nil, int64(done), 10)},
			},
		}
		if done++; done%naiveTransaction == 0 || done == all {
			if err := p.CommitTxn(); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// naiveProducer makes the topic and a producer with the library's own batching.
func naiveProducer(brokers []string) (sarama.AsyncProducer, error) {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Net.MaxOpenRequests = 1
	c.Producer.Return.Errors = false // the commit tells
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Transaction.ID = "naive"
	c.Producer.Transaction.Retry.Backoff = 2 * time.Millisecond
	if err := makeTopic(brokers, c); err != nil {
		return nil, err
	}
	return sarama.NewAsyncProducer(brokers, c)
}

// makeTopic makes the topic.
func makeTopic(brokers []string, c *sarama.Config) error {
	admin, err := sarama.NewClusterAdmin(brokers, c)
	if err != nil {
		return err
	}
	return errors.Join(admin.CreateTopic(topicName, &sarama.TopicDetail{NumPartitions: plainPartitions, ReplicationFactor: 1}, false), admin.Close())
}

// naiveFlavor is that of the server whose GTIDs look like this.
func naiveFlavor(gtid string) string {
	if strings.Contains(gtid, ":") {
		return gomysql.MySQLFlavor
	}
	return gomysql.MariaDBFlavor
}

// syncerConfig is how the binlog is read behind a position.
func syncerConfig(address, gtid string) (replication.BinlogSyncerConfig, gomysql.GTIDSet, error) {
	dsn, err := mysql.ParseDSN(address)
	if err != nil {
		return replication.BinlogSyncerConfig{}, nil, err
	}
	host, text, err := net.SplitHostPort(dsn.Addr)
	if err != nil {
		return replication.BinlogSyncerConfig{}, nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return replication.BinlogSyncerConfig{}, nil, err
	}
	flavor := naiveFlavor(gtid)
	set, err := gomysql.ParseGTIDSet(flavor, gtid)
	return replication.BinlogSyncerConfig{
		ServerID: 4_000_000_000, Flavor: flavor, Host: host, Port: uint16(port), User: dsn.User, Password: dsn.Passwd,
		DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler),
	}, set, err
}

func naiveStream(dsn, gtid string) (*replication.BinlogStreamer, func(), error) {
	cfg, set, err := syncerConfig(dsn, gtid)
	if err != nil {
		return nil, nil, err
	}
	syncer := replication.NewBinlogSyncer(cfg)
	stream, err := syncer.StartSyncGTID(set)
	if err != nil {
		syncer.Close()
		return nil, nil, err
	}
	return stream, syncer.Close, nil
}
