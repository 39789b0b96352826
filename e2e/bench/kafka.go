package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"notifymirror/e2e/engines"
)

// kafka is a running Kafka with nothing in it.
type kafka struct {
	addr string
	pid  int
	end  func() error
}

// stop ends the Kafka and throws its data away.
func (k *kafka) stop() error { return k.end() }

// A kafkaKind is a Kafka to measure on.
type kafkaKind struct {
	suffix string // of what is measured on it
	start  func(context.Context) (*kafka, error)
}

// kafkaKinds are the embedded Kafka and, where its jars were named, Apache's.
func (b *bench) kafkaKinds() []kafkaKind {
	kinds := []kafkaKind{{"", b.startKafka}}
	if b.kafka != "" {
		kinds = append(kinds, kafkaKind{", on Apache Kafka", b.startApache})
	}
	return kinds
}

// startKafka starts the embedded one.
func (b *bench) startKafka(ctx context.Context) (*kafka, error) {
	dir, err := os.MkdirTemp(b.dir, "kafka-")
	if err != nil {
		return nil, err
	}
	k, err := b.spawn(roleKafka, brief{Dir: dir, Profile: b.profileFile("kafka")})
	if err != nil {
		return nil, err
	}
	w, err := k.next(ctx)
	if err != nil {
		return nil, errors.Join(err, k.stop())
	}
	return &kafka{w.Addr, k.cmd.Process.Pid, func() error { return errors.Join(k.stop(), os.RemoveAll(dir)) }}, nil
}

// startApache starts Apache Kafka: one node, with its own defaults for flushing.
func (b *bench) startApache(ctx context.Context) (*kafka, error) {
	dir, err := os.MkdirTemp(b.dir, "apache-")
	if err != nil {
		return nil, err
	}
	k, err := engines.StartKafka(ctx, engines.KafkaConfig{Jars: b.kafka, Dir: dir})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	started := &kafka{k.Addr(), k.PID(), func() error {
		k.Kill()
		return os.RemoveAll(dir)
	}}
	if err := started.awaitCoordinators(ctx); err != nil {
		return nil, errors.Join(err, started.stop())
	}
	return started, nil
}

// awaitCoordinators lets a new Kafka make its own topics, which takes seconds at the first
// question and is no part of what is measured.
func (k *kafka) awaitCoordinators(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.addr))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	admin := kadm.NewClient(client)
	return every(ctx, 50*time.Millisecond, func() (bool, error) {
		return admin.FindGroupCoordinators(ctx, "any").Ok() && admin.FindTxnCoordinators(ctx, "any").Ok(), nil
	})
}
