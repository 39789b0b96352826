package main

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/stream/board"
)

// boardListen is where boards are without --listen.
const boardListen = "127.0.0.1:7780"

// boardConfig is the file of notify board.
type boardConfig struct {
	// Listen is the host:port to serve the pages on. Default boardListen; --listen overrides it.
	Listen string `yaml:"listen"`
	// Insecure allows Listen beyond loopback, without authentication.
	Insecure     bool `yaml:"insecure"`
	board.Config `yaml:",inline"`
}

// Validate implements daemon.Validator.
func (c *boardConfig) Validate() []daemon.Problem {
	return append(daemon.CheckListen("listen", cmp.Or(c.Listen, boardListen), c.Insecure), daemon.ProblemsOf(c.Config.Validate())...)
}

func (a *app) boardCommand() *cobra.Command {
	var path, listen, level string
	var check bool
	cmd := &cobra.Command{
		Use:   "board --config FILE",
		Short: "Serve live boards: web pages over topics of the mirror",
		Long: `Serve web pages that show what comes through topics of the mirror: a number, its
rate and curve, shares by field, the latest messages. Which boards there are is in
a file of this form (deploy/boards.yaml has every key):

  kafka:
    brokers: [127.0.0.1:7792]
  boards:
    trades:
      topic: trades
      since: day
      bars: [json.side]
      top: [key]

Prometheus finds metrics under /metrics.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.StringVar(&path, "config", "", "path of the configuration file (YAML)")
	fl.StringVar(&listen, "listen", "", "host:port to serve the pages on; overrides the file (default "+boardListen+")")
	fl.BoolVar(&check, "check", false, "check the configuration and connect nowhere")
	fl.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag is there
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		logLevel, err := daemon.ParseLevel(level)
		if err != nil {
			return err
		}
		a.began = true
		var cfg boardConfig
		if err := daemon.Load(path, os.Environ(), &cfg); err != nil {
			return err
		}
		listen = cmp.Or(listen, cfg.Listen, boardListen)
		if problems := daemon.CheckListen("--listen", listen, cfg.Insecure); len(problems) > 0 {
			return &daemon.ConfigError{Problems: problems}
		}
		if check {
			a.say("the configuration is good")
			return nil
		}
		registry := daemon.NewRegistry(daemon.ReadBuild())
		server, err := board.New(cfg.Config, board.Deps{Logger: daemon.NewLogger(a.err, logLevel), Registerer: registry})
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", listen)
		if err != nil {
			return daemon.WithExitCode(daemon.ExitFailed, errors.New("--listen: "+err.Error()))
		}
		mux := http.NewServeMux()
		mux.Handle("/", server.Handler())
		mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		a.say("boards at http://%s", listener.Addr())
		return server.Run(cmd.Context(), listener, mux)
	}
	return cmd
}
