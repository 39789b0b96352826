package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Agent is what a daemon runs once it has started.
type Agent struct {
	// Run works until its context ends, then stops gracefully. Its error after that is
	// the context's, or none.
	Run func(context.Context) error
	// Components are asked by /readyz.
	Components []Component
	// Status answers /status as JSON; nil means there is none.
	Status func() any
	// Change answers POST /change, JSON to JSON; its error becomes a 409. Nil means there is
	// none.
	Change func(ctx context.Context, body []byte) (any, error)
}

// Process is the life of a daemon.
type Process struct {
	Ops    *Ops
	Logger *slog.Logger
	// ShutdownDelay is how long the daemon works on after /readyz has turned false, so
	// that whoever sends it work can notice.
	ShutdownDelay time.Duration
	// Start checks, prepares and makes the agent. The ops listener answers meanwhile.
	Start func(context.Context) (Agent, error)
}

// Run starts the agent and runs it until the context ends (a signal) or the agent does. On
// the end of the context /readyz turns false, then after ShutdownDelay the agent is told to
// stop, and Run returns when it has. A planned stop returns nil.
func Run(ctx context.Context, p Process) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	opsCtx, stopOps := context.WithCancel(context.WithoutCancel(ctx))
	opsDone := make(chan error, 1)
	go func() {
		err := p.Ops.Serve(opsCtx)
		stopWork() // a daemon that cannot be watched does not go on
		opsDone <- err
	}()
	err := p.work(ctx, work, stopWork)
	stopOps()
	return errors.Join(err, <-opsDone)
}

// work is Run without the ops listener.
func (p Process) work(ctx, work context.Context, stopWork func()) error {
	starting, cancel := context.WithCancel(work)
	stopStarting := context.AfterFunc(ctx, cancel)
	agent, err := p.Start(starting)
	stopStarting()
	cancel()
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	}
	p.Ops.started(agent)
	done := make(chan error, 1)
	go func() { done <- agent.Run(work) }()
	select {
	case err = <-done:
		return planned(work, err)
	case <-ctx.Done():
	}
	p.Ops.stopping()
	p.Logger.InfoContext(ctx, "stopping", slog.String("delay", p.ShutdownDelay.String()))
	delay := time.NewTimer(p.ShutdownDelay)
	defer delay.Stop()
	select {
	case err = <-done:
	case <-delay.C:
		stopWork()
		err = <-done
	}
	return planned(work, err)
}

// planned returns nil for the error of an agent that was told to stop.
func planned(work context.Context, err error) error {
	if work.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
