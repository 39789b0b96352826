package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/cmd/notify/dev"
)

func (a *app) devCommand() *cobra.Command {
	var cfg dev.Config
	var level string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole stack on this machine: database, Kafka, broker, mirror",
		Long: `Run a private MySQL or MariaDB server, an embedded Kafka, a broker and a mirror in
one process, until Ctrl-C. For development: not for production.

Everything listens on 127.0.0.1: the API on the base port, the ops addresses of
notifyd and canald at +1 and +11, the database at +6, the demo's board at +80,
Kafka at +92. Data is kept
between runs. With -o json the banner is one object.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.BoolVar(&cfg.Demo, "demo", false, "publish sample trades to two sample groups, with a live board over them")
	fl.StringVar(&cfg.DataDir, "data-dir", "", "keep data here (default $XDG_DATA_HOME/notify/dev or ~/.local/share/notify/dev)")
	fl.BoolVar(&cfg.Ephemeral, "ephemeral", false, "keep nothing: use a temporary directory")
	fl.IntVar(&cfg.BasePort, "base-port", 7700, "port of the API; all others move with it")
	fl.StringVar(&cfg.Mysqld, "mysqld", "", "database server to run (default: the best one found)")
	fl.StringVar(&level, "log-level", "warn", "debug, info, warn or error")
	cmd.MarkFlagsMutuallyExclusive("data-dir", "ephemeral")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if cfg.LogLevel, err = daemon.ParseLevel(level); err != nil {
			return err
		}
		a.began = true
		cfg.JSON = a.format != "text"
		cfg.Program = program(os.Args[0])
		cfg.Version = daemon.ReadBuild().Version
		cfg.Out, cfg.Err = a.out, a.err
		return dev.Run(cmd.Context(), cfg)
	}
	return cmd
}

// program is how to call this program again: by its name when the shell found it,
// else by its path.
func program(arg0 string) string {
	if strings.ContainsRune(arg0, '/') {
		return arg0
	}
	return "notify"
}
