// Command notify is everything a person types: the whole stack on one machine
// (notify dev), and the commands that talk to a running one.
//
// Data goes to stdout, talk to stderr. Exit codes: 0 all, 1 failed, 2 wrong input,
// 3 partly (each failed item is named), 4 not found, 5 denied, 6 unreachable.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Args[1:]))
}
