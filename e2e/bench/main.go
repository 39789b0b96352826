package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"notifymirror/e2e/engines"
	"notifymirror/notifyd/embedded"
)

// options are what the command line says.
type options struct {
	only     []string
	pairs    int
	window   time.Duration // of one side of a rate
	samples  int           // of each side of a pair of idle publishes
	messages int           // to catch up with
	records  int           // to read and to replay
	streams  int
	halves   int    // that stay undecided
	pile     int    // messages that one of five groups has missed
	depth    int    // messages pending in a store that is published into
	calls    string // callHTTP or callGRPC
	report   string
	profile  string
	disk     string // directory on it
	mysqld   string // path
	kafka    string // directory of Apache Kafka's jars; empty: none
	pool     int64  // InnoDB's buffer pool and redo log, in bytes
	verbose  bool
}

// measurements by name, in the order in which they run.
func measurements() []measurement {
	return []measurement{
		{"idle", measureIdle},
		{"publish", measureStreams},
		{"unary", measureUnary},
		{"catchup", measureCatchUp},
		{"latency", measureLatency},
		{"readable", measureReadable},
		{"readers", measureReaders},
		{"replicas", measureReplicas},
		{"screen", measureScreen},
		{"board", measureBoard},
		{"read", measureRead},
		{"filters", measureFilters},
		{"halves", measureHalves},
		{"relay", measureRelay},
		{"push", measurePush},
		{"credit", measureCredit},
		{"rolling", measureRolling},
		{"piled", measurePiled},
		{"depth", measureDepth},
	}
}

type measurement struct {
	name string
	run  func(context.Context, *bench) ([]number, error)
}

// bench is what every measurement works with.
type bench struct {
	options
	server embedded.Server
	dir    string    // for everything that is thrown away
	talk   io.Writer // progress
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.talk, format+"\n", args...) }

func main() {
	if role := os.Getenv(envRole); role != "" {
		os.Exit(childMain(role))
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, usage io.Writer) (options, error) {
	var names []string
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	o := options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	only := f.String("only", strings.Join(names, ","), "measurements, separated by commas")
	quick := f.Bool("quick", false, "everything small, to see that it works; the numbers mean little")
	f.IntVar(&o.pairs, "pairs", 5, "pairs of runs of each measurement")
	f.DurationVar(&o.window, "window", 8*time.Second, "length of each run of a rate")
	f.IntVar(&o.samples, "samples", 100, "single publishes, and inserts, in a pair")
	f.IntVar(&o.messages, "messages", 500_000, "messages that the mirror catches up with")
	f.IntVar(&o.records, "records", 2_000_000, "records that a consumer reads, and that windows are replayed over")
	f.IntVar(&o.streams, "streams", 64, "concurrent publishers")
	f.IntVar(&o.halves, "halves", 200_000, "undecided halves beside which is published")
	f.IntVar(&o.pile, "pile", 2_000_000, "messages that one of five groups has missed")
	f.IntVar(&o.depth, "depth", 5_000_000, "messages that are pending in a store into which is published")
	f.StringVar(&o.calls, "calls", callHTTP, "unary calls by http (the Connect protocol over HTTP/1.1) or grpc (the Go client)")
	f.StringVar(&o.report, "report", "", "file for the report in Markdown")
	f.StringVar(&o.profile, "profile", "", "directory for CPU profiles of broker and mirror")
	f.StringVar(&o.disk, "dir", "", "directory on the disk to measure (default: that of temporary files)")
	f.StringVar(&o.mysqld, "server", "", "mysqld or mariadbd to use (default: "+embedded.EnvServer+", else what is found)")
	f.StringVar(&o.kafka, "kafka", os.Getenv(engines.EnvKafkaJars), "Apache Kafka's jars, as deploy/install/kafka.sh prints (default: "+engines.EnvKafkaJars+"; none: the embedded Kafka alone)")
	f.BoolVar(&o.verbose, "v", false, "show what the children log")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("argument %q: there are only flags", f.Arg(0))
	}
	o.pool = 1 << 30
	if *quick {
		o.pairs, o.window, o.samples, o.messages, o.records, o.streams, o.halves, o.pile, o.depth, o.pool = 1, 400*time.Millisecond, 20, 20_000, 20_000, 8, 2000, 2000, 2000, 64<<20
	}
	o.only = strings.Split(*only, ",")
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("-only %s: must be among %s", name, strings.Join(names, ","))
		}
	}
	if o.calls != callHTTP && o.calls != callGRPC {
		return o, fmt.Errorf("-calls %s: must be %s or %s", o.calls, callHTTP, callGRPC)
	}
	if o.pairs < 1 || o.samples < 1 || o.messages < 1 || o.records < 1 || o.streams < 1 || o.halves < 1000 || o.pile < 1000 || o.depth < 1000 || o.window < 100*time.Millisecond {
		return o, errors.New("-pairs, -samples, -messages, -records, -streams: at least 1; -halves, -pile, -depth: at least 1000; -window: at least 100ms")
	}
	return o, nil
}

// run measures, prints the table and writes the report. A number that misses what is
// required is no error.
func run(ctx context.Context, o options, out, talk io.Writer) (err error) {
	server, err := embedded.Find(o.mysqld)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.disk, "notify-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return err
		}
	}
	b := &bench{options: o, server: server, dir: dir, talk: talk}
	m, err := describe(ctx, dir, server)
	if err != nil {
		return err
	}
	var numbers []number
	for _, one := range measurements() {
		if !slices.Contains(o.only, one.name) {
			continue
		}
		b.say("%s ...", one.name)
		got, err := one.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		numbers = append(numbers, got...)
	}
	r := report{machine: m, options: o, numbers: numbers}
	if err := r.table(out); err != nil {
		return err
	}
	if o.report == "" {
		return nil
	}
	return os.WriteFile(o.report, []byte(r.markdown()), 0o644)
}
