// Command withkafka runs a command beside a fresh Apache Kafka broker:
//
//	withkafka JARS COMMAND [ARGUMENT...]
//
// JARS is what deploy/install/kafka.sh prints. The command finds the broker's address in
// NOTIFY_TEST_KAFKA and the jars in NOTIFY_TEST_KAFKA_JARS. The broker and its data are gone
// when the command has ended, and withkafka ends with the command's exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"notifymirror/e2e/engines"
)

func main() {
	code, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withkafka:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (code int, err error) {
	if len(args) < 2 {
		return 2, errors.New("usage: withkafka JARS COMMAND [ARGUMENT...]")
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	dir, err := os.MkdirTemp("", "notify-kafka-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	jars := args[0]
	k, err := engines.StartKafka(ctx, engines.KafkaConfig{Jars: jars, Dir: dir})
	if err != nil {
		return 1, err
	}
	defer k.Kill()
	fmt.Fprintf(os.Stderr, "%s runs on %s\n", filepath.Base(jars), k.Addr())

	cmd := exec.CommandContext(ctx, args[1], args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), engines.EnvKafka+"="+k.Addr(), engines.EnvKafkaJars+"="+jars)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = await(cmd.Process, signals, ended)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	select {
	case <-k.Done():
		return 1, errors.New("the broker ended before the command")
	default:
		return 0, nil
	}
}

// await returns how the command ended. SIGTERM is passed on to it; an interrupt is not,
// because the terminal sends that to both.
func await(command *os.Process, signals <-chan os.Signal, ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			if s == syscall.SIGTERM {
				// The only error there can be is that it has just ended.
				_ = command.Signal(s)
			}
		}
	}
}
