package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd/client"
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what every command shares: its streams and the global flags.
type app struct {
	streams
	format  string
	quiet   bool
	timeout time.Duration
	server  string
	kafka   kafkaFlags
	ops     string

	began bool // a command's own code has run: errors before it are of usage
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, s streams, args []string) int {
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return daemon.ExitOK
	}
	if !a.began {
		err = usageError(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	}
	err = explain(err)
	fmt.Fprintf(s.err, "notify: %v\n", err)
	return daemon.ExitCode(err)
}

func (a *app) root() *cobra.Command {
	root := a.parent("notify", "Publish, listen, look after topics and groups, and run the whole stack")
	root.Long = root.Short + `.

Data goes to standard output, everything else to standard error; -o json and jsonl are for programs.
Exit code: 0 done, 1 failed, 2 wrong flags, arguments or configuration, also where the
broker says so, 3 a part failed and each is named, 4 not found, 5 denied, 6 broker, Kafka
or store not reachable.`
	root.Args = cobra.ArbitraryArgs // cobra's own answer to an unknown command has several lines
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		switch a.format {
		case "text", "json", "jsonl":
			return nil
		}
		return fmt.Errorf("-o %s: want text, json or jsonl", a.format)
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	f := root.PersistentFlags()
	f.StringVarP(&a.format, "output", "o", "text", "text, json or jsonl (one object per line)")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "only data and errors")
	spanVar(f, &a.timeout, "timeout", 10*time.Second, "longest wait for an answer; while publishing many, longest time without any")
	f.StringVar(&a.server, "server", envOr("NOTIFY_SERVER", "127.0.0.1:7700"), "broker, host:port (NOTIFY_SERVER)")
	a.kafka.add(root)
	f.StringVar(&a.ops, "ops", envOr("NOTIFY_OPS", "127.0.0.1:7711"), "ops address of canald, host:port (NOTIFY_OPS)")
	root.AddCommand(a.devCommand(), a.publishCommand(), a.listenCommand(), a.topicCommand(), a.groupCommand(),
		a.subCommand(), a.webhookCommand(), a.halfCommand(), a.outboxCommand(), a.deadCommand(), a.messageCommand(), a.replayCommand(), a.mirrorCommand(), a.boardCommand(), a.doctorCommand(), a.versionCommand())
	plain(root)
	return root
}

// action makes a command's function, and notes that the command line was right.
func (a *app) action(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.began = true
		return f(cmd, args)
	}
}

// parent is a command that only has commands below it.
func (a *app) parent(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, SuggestionsMinimumDistance: 2}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				err = fmt.Errorf("%w, did you mean %s", err, strings.Join(near, " or "))
			}
			return err
		}
		return cmd.Help()
	}
	cmd.AddCommand(children...)
	return cmd
}

// connect returns a client of the broker that the flags name.
func (a *app) connect(patience time.Duration) (*client.Client, error) {
	c, err := client.New(client.Config{Addrs: []string{a.server}, Patience: patience, DialTimeout: min(3*time.Second, a.timeout)})
	if err != nil {
		return nil, usageError(fmt.Errorf("--server: %w", err))
	}
	return c, nil
}

// once calls f with a client and a context that ends after --timeout.
func (a *app) once(cmd *cobra.Command, f func(context.Context, *client.Client) error) error {
	c, err := a.connect(time.Nanosecond)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	return f(ctx, c)
}

// say prints talk to stderr, unless --quiet.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// terminal reports whether w is one.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
