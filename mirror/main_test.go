package mirror

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"notifymirror/mirror/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// envKafkaDir makes the test binary an embedded Kafka in that directory, for tests
// that stop and start it.
const (
	envKafkaDir  = "NOTIFY_TEST_SERVE_KAFKA"
	envKafkaAddr = "NOTIFY_TEST_SERVE_KAFKA_ADDR"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envKafkaDir); dir != "" {
		os.Exit(serveKafka(dir))
	}
	os.Exit(dbtest.Run(m))
}

// serveKafka serves until its standard input ends.
func serveKafka(dir string) int {
	k, err := embedded.Start(embedded.Config{Dir: dir, Addr: os.Getenv(envKafkaAddr)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(k.Addrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = k.Close()
	return 0
}

// A kafkaProcess is an embedded Kafka in a process of its own.
type kafkaProcess struct {
	addr string
	stop func()
}

// startProcess serves dir at addr, or at a free port when that is empty.
func startProcess(t *testing.T, dir, addr string) kafkaProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envKafkaDir+"="+dir, envKafkaAddr+"="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return kafkaProcess{strings.TrimSpace(line), stop}
}
