package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
	"notifymirror/mirror/access"
	"notifymirror/stream"
)

// kafkaFlags say where the mirror's Kafka is.
type kafkaFlags struct {
	brokers string // host:port, with commas between several
	file    string
	changed func(flag string) bool
}

func (k *kafkaFlags) add(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&k.brokers, "kafka", envOr("NOTIFY_KAFKA", "127.0.0.1:7792"), "Kafka of the mirror, host:port (NOTIFY_KAFKA)")
	f.StringVar(&k.file, "kafka-config", os.Getenv("NOTIFY_KAFKA_CONFIG"),
		"file with a kafka section as canald's, for TLS and an account (NOTIFY_KAFKA_CONFIG); --kafka overrides its brokers")
	k.changed = f.Changed
}

// given tells whether the command line says where Kafka is.
func (k *kafkaFlags) given() bool { return k.changed("kafka") || k.changed("kafka-config") }

// kafkaFile is what --kafka-config names.
type kafkaFile struct {
	Kafka mirror.KafkaConfig `yaml:"kafka"`
}

// Validate implements daemon.Validator.
func (f *kafkaFile) Validate() (problems []daemon.Problem) {
	for _, err := range f.Kafka.Access.Check() {
		problems = append(problems, daemon.ProblemsOf(err)...)
	}
	return problems
}

// read is what the flags say; of several fields of the section it makes use of brokers, tls and sasl.
func (k *kafkaFlags) read() (mirror.KafkaConfig, error) {
	given := mirror.KafkaConfig{Brokers: strings.Split(k.brokers, ",")}
	if k.file == "" {
		return given, nil
	}
	if _, err := os.Stat(k.file); err != nil {
		return given, usageError(fmt.Errorf("--kafka-config: %w", err))
	}
	var f kafkaFile
	if err := daemon.Load(k.file, os.Environ(), &f); err != nil {
		return given, fmt.Errorf("--kafka-config: %w", err)
	}
	if k.changed("kafka") || len(f.Kafka.Brokers) == 0 {
		f.Kafka.Brokers = given.Brokers
	}
	return f.Kafka, nil
}

// kafkaFailure gives an error of a consumer its exit code, and a Kafka that cannot be reached the way to mend it.
func kafkaFailure(err error) error {
	mend, denied := access.Mend(err)
	switch {
	case denied:
		return daemon.WithExitCode(daemon.ExitDenied, fmt.Errorf("%w; %s (--kafka-config)", err, mend))
	case errors.Is(err, stream.ErrUnreachable) && mend != "":
		return daemon.WithExitCode(daemon.ExitUnreachable, fmt.Errorf("%w; %s; --kafka-config says so", err, mend))
	case errors.Is(err, stream.ErrUnreachable):
		return daemon.WithExitCode(daemon.ExitUnreachable, fmt.Errorf("%w; \"notify dev\" starts one here, --kafka or NOTIFY_KAFKA names another", err))
	case errors.Is(err, stream.ErrUnknownTopic):
		return daemon.WithExitCode(daemon.ExitNotFound, err)
	}
	return err
}
