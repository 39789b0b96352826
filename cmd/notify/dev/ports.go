package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// ports are where everything listens on 127.0.0.1. They follow from one number.
type ports struct {
	api, ops, database, mirrorOps, board, kafka int
}

func portsFrom(base int) ports {
	return ports{api: base, ops: base + 1, database: base + 6, mirrorOps: base + 11, board: base + 80, kafka: base + 92}
}

func (p ports) all() []struct {
	what string
	port int
} {
	return []struct {
		what string
		port int
	}{
		{"API", p.api}, {"ops of notifyd", p.ops}, {"database", p.database}, {"ops of canald", p.mirrorOps}, {"board", p.board}, {"Kafka", p.kafka},
	}
}

// free returns an error that names a taken port and the flag that moves it. A
// taken port is looked at again until patience has passed: what listened there
// may just be ending.
func (p ports) free(ctx context.Context, patience time.Duration) error {
	if p.api < 1 || p.kafka > 65535 {
		return fmt.Errorf("--base-port %d: want 1 to %d", p.api, 65535-(p.kafka-p.api))
	}
	deadline := time.Now().Add(patience)
	for _, one := range p.all() {
		for {
			err := tryListen(one.port)
			if err == nil {
				break
			}
			if !errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("port %d (%s): %w", one.port, one.what, err)
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("port %d (%s) is in use: --base-port %d moves all", one.port, one.what, otherBase(p.api))
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// otherBase is a base that shares no port with base.
func otherBase(base int) int {
	if base > 60000 {
		return 7700
	}
	return base + 100
}

func tryListen(port int) error {
	ln, err := net.Listen("tcp", addr(port))
	if err != nil {
		return err
	}
	return ln.Close()
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
