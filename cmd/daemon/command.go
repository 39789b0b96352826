package daemon

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Flags are the flags of every daemon.
type Flags struct {
	// Config is the path of the configuration file; "" is none.
	Config string
	// LogLevel overrides log_level; "" does not.
	LogLevel string
}

// NewCommand returns a daemon's root command with its flags and the command check-config.
// load reads the configuration for check-config, and may have problems.
func NewCommand(name, short string, load func(Flags) error, run func(context.Context, Flags) error) *cobra.Command {
	var flags Flags
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		Version:       ReadBuild().String(),
		Args:          noArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), flags)
		},
	}
	root.PersistentFlags().StringVar(&flags.Config, "config", "", "path of the configuration file (YAML)")
	root.PersistentFlags().StringVar(&flags.LogLevel, "log-level", "", "debug, info, warn or error; overrides log_level")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return WithExitCode(ExitUsage, err) })
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		_, err := ParseLevel(flags.LogLevel)
		return WithExitCode(ExitUsage, err)
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(&cobra.Command{
		Use:   "check-config",
		Short: "Check the configuration and connect nowhere",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := load(flags); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "the configuration is good")
			return err
		},
	})
	return root
}

// Subcommand adds a command without arguments that uses the daemon's flags.
func Subcommand(root *cobra.Command, use, short string, run func(*cobra.Command, Flags) error) *cobra.Command {
	sub := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := root.PersistentFlags().GetString("config")
			if err != nil {
				return err
			}
			level, err := root.PersistentFlags().GetString("log-level")
			if err != nil {
				return err
			}
			return run(cmd, Flags{path, level})
		},
	}
	root.AddCommand(sub)
	return sub
}

// Main executes a command until it ends or SIGINT or SIGTERM ends its context; a second
// signal ends the process at once. It writes an error to stderr and returns the exit code.
func Main(root *cobra.Command, args []string, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), err)
	}
	return ExitCode(err)
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return WithExitCode(ExitUsage, fmt.Errorf("unknown command or argument %q: see %s --help", args[0], cmd.CommandPath()))
	}
	return nil
}
