package mirror

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"database/sql"

	"github.com/IBM/sarama"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"log/slog"

	"notifymirror/mirror/record"
	"notifymirror/notifyd/embedded/dbtest"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/migrate"
)

// benchMessages is how many messages of 512 bytes a catch-up copies; NOTIFY_BENCH_MESSAGES
// changes it.
func benchMessages() int {
	if n, err := strconv.Atoi(os.Getenv("NOTIFY_BENCH_MESSAGES")); err == nil {
		return n
	}
	return 500_000
}

// BenchmarkCatchUp compares the Copier with the plainest pipeline, which checks nothing:
// go-mysql's decoded rows into sarama transactions of 10,000. Both read the same binlog.
func BenchmarkCatchUp(b *testing.B) {
	n := benchMessages()
	db := dbtest.Start(b)
	dsn := dbtest.SchemaOn(b, db)
	info, err := migrate.Migrate(b.Context(), dsn, migrate.Options{})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, dsn, info.Shards, n)
	brokers := separateBrokers(b)
	run := func(name string, once func(b *testing.B, i int)) {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				once(b, i)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
	run("copier", func(b *testing.B, _ int) { copyAll(b, dsn, brokers, uint64(n)) })
	run("naive", func(b *testing.B, _ int) { copyNaively(b, dsn, info, brokers, n) })
}

// fill inserts n messages of 512 bytes, 500 in a transaction.
func fill(b *testing.B, dsn string, shards, n int) {
	b.Helper()
	db, err := sql.Open("mysql", dsn+"&interpolateParams=true")
	if !strings.Contains(dsn, "?") {
		db, err = sql.Open("mysql", dsn+"?interpolateParams=true")
	}
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("SET GLOBAL sync_binlog=0"); err != nil {
		b.Fatal(err)
	}
	next := make([]int64, shards)
	body := make([]byte, 512)
	for done := 0; done < n; {
		shard := done / 500 % shards
		var values []string
		var args []any
		for range min(500, n-done) {
			next[shard]++
			id := uuid.Must(uuid.NewV7())
			binary.BigEndian.PutUint64(body, uint64(done))
			values = append(values, "(?, ?, 'trades', ?, ?, ?, 1, "+schema.NowMicros+")")
			args = append(args, 1<<posBits+next[shard], id[:], fmt.Sprintf("key-%d", done%1000), `{"kind":"trade"}`, string(body))
			done++
		}
		if _, err := db.Exec("INSERT INTO "+schema.Message(shard)+" ("+schema.MessageColumnList+") VALUES "+strings.Join(values, ","), args...); err != nil {
			b.Fatal(err)
		}
	}
}

// copyAll runs a Copier of a fresh cluster name until it has copied n messages.
func copyAll(b *testing.B, dsn string, brokers []string, n uint64) {
	run := uuid.NewString()[:8]
	c, err := New(Config{
		Cluster: "bench-" + run, TopicPrefix: "bench-" + run + ".", ReplicationFactor: 1,
		Stores: map[string]StoreConfig{"a": {DSN: dsn}}, Kafka: KafkaConfig{Brokers: brokers, AllowEmbedded: true},
	}, Deps{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	// Each run is a first start: it gets a store id of its own.
	read := c.readStore
	c.readStore = func(ctx context.Context) (storeInfo, error) {
		info, err := read(ctx)
		info.id = "bench-" + run
		return info, err
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx) }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for c.Status().Seq < n {
		select {
		case err := <-result:
			b.Fatal(err)
		case <-tick.C:
		}
	}
	cancel()
	if err := <-result; err != nil {
		b.Fatal(err)
	}
}

// copyNaively is what one would write first.
func copyNaively(b *testing.B, dsn string, info schema.Info, brokers []string, n int) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		b.Fatal(err)
	}
	host, portText, _ := net.SplitHostPort(cfg.Addr)
	port, _ := strconv.Atoi(portText)
	flavor := gomysql.MySQLFlavor
	if !strings.Contains(info.InstalledGTID, ":") {
		flavor = gomysql.MariaDBFlavor
	}
	set, err := gomysql.ParseGTIDSet(flavor, info.InstalledGTID)
	if err != nil {
		b.Fatal(err)
	}
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 4_000_000_000, Flavor: flavor, Host: host, Port: uint16(port), User: cfg.User, Password: cfg.Passwd,
		DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	stream, err := syncer.StartSyncGTID(set)
	if err != nil {
		b.Fatal(err)
	}
	topic := "naive-" + uuid.NewString()[:8]
	conf := saramaConfig(Config{TransactionTimeout: time.Minute, Kafka: KafkaConfig{ClientID: "naive"}}, topic, nil, new(atomic.Bool))
	conf.Producer.Return.Successes = false
	admin, err := sarama.NewClusterAdmin(brokers, conf)
	if err != nil {
		b.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 8, ReplicationFactor: 1}, false); err != nil {
		b.Fatal(err)
	}
	p, err := sarama.NewAsyncProducer(brokers, conf)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for done := 0; done < n; {
		ev, err := stream.GetEvent(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		rows, ok := ev.Event.(*replication.RowsEvent)
		if !ok || string(rows.Table.Schema) != cfg.DBName || !isMessageTable(string(rows.Table.Table)) {
			continue
		}
		for _, r := range rows.Rows {
			if done%10_000 == 0 {
				if err := p.BeginTxn(); err != nil {
					b.Fatal(err)
				}
			}
			key := []byte(fmt.Sprint(r[3]))
			p.Input() <- &sarama.ProducerMessage{
				Topic: topic, Partition: record.Partition(key, 8), Key: sarama.ByteEncoder(key), Value: sarama.ByteEncoder(r[5].([]byte)),
				Headers: []sarama.RecordHeader{
					{Key: []byte("id"), Value: []byte(fmt.Sprint(r[1]))},
					{Key: []byte("born"), Value: []byte(fmt.Sprint(r[7]))},
					{Key: []byte("seq"), Value: strconv.AppendInt(nil, int64(done), 10)},
				},
			}
			if done++; done%10_000 == 0 || done == n {
				if err := p.CommitTxn(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
