package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"connectrpc.com/connect"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd/client"
)

func usageError(err error) error { return daemon.WithExitCode(daemon.ExitUsage, err) }

// explain gives an error its exit code, and a broker that cannot be reached the
// way to mend it.
func explain(err error) error {
	var coded daemon.Coded
	if errors.As(err, &coded) {
		return err
	}
	if errors.Is(err, client.ErrUnreachable) {
		addr := "?"
		var e *client.Error
		if errors.As(err, &e) {
			addr = e.Addr
		}
		return daemon.WithExitCode(daemon.ExitUnreachable,
			fmt.Errorf("broker %s cannot be reached: %s; \"notify dev\" starts one here, --server or NOTIFY_SERVER names another", addr, shortCause(err)))
	}
	var e *client.Error
	if errors.As(err, &e) {
		return daemon.WithExitCode(exitOf(e), err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return daemon.WithExitCode(daemon.ExitUnreachable, err)
	}
	return err
}

func exitOf(e *client.Error) int {
	switch e.Reason {
	case client.ReasonUnknownTopic, client.ReasonUnknownGroup:
		return daemon.ExitNotFound
	}
	switch e.Code() {
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		return daemon.ExitDenied
	case connect.CodeNotFound:
		return daemon.ExitNotFound
	case connect.CodeInvalidArgument:
		return daemon.ExitUsage
	case connect.CodeDeadlineExceeded:
		return daemon.ExitUnreachable
	}
	return daemon.ExitFailed
}

// shortCause is the innermost cause that a person can use.
func shortCause(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		if errors.Is(op.Err, os.ErrDeadlineExceeded) {
			return "no answer in time"
		}
		return op.Err.Error()
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		return ce.Message()
	}
	return err.Error()
}

// partly is the error of a command of which some items failed; each was named.
func partly(failed, all int) error {
	code := daemon.ExitPartly
	if failed == all {
		code = daemon.ExitFailed
	}
	return daemon.WithExitCode(code, fmt.Errorf("%d of %d failed", failed, all))
}
