package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
	"notifymirror/cmd/notify/dev"
	"notifymirror/cmd/notify/doctor"
	"notifymirror/mirror"
	"notifymirror/notifyd/finding"
)

// doctorFlags say what to look at.
type doctorFlags struct {
	notifyd, canald string
	dsns            []string
	stack           dev.Config
	fix             bool
}

func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check servers, accounts, Kafka, clocks and disks, and say how to mend what is wrong",
		Long: `Look at everything that an installation stands on, and change nothing: the servers of
its stores and the daemons' accounts, Kafka and its topics, clocks and disks. Each
finding says how much it matters (error, warning, note), why, and what mends it.

Without flags it looks at the stack of notify dev. Run it with the daemons' files, and
with their environment where that has passwords.

Exit code: 0 nothing but notes, 3 warnings, else that of the first error: 1 a setting,
2 the configuration, 5 a password or right, 6 something that cannot be reached.`,
		Args: cobra.NoArgs,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.notifyd, "notifyd-config", "", "configuration of notifyd")
	fl.StringVar(&f.canald, "canald-config", "", "configuration of canald")
	fl.StringArrayVar(&f.dsns, "dsn", nil, "store, user:password@tcp(host:port)/schema; with --kafka for its mirror")
	fl.StringVar(&f.stack.DataDir, "data-dir", "", "directory of notify dev")
	fl.IntVar(&f.stack.BasePort, "base-port", 7700, "base port of notify dev")
	fl.BoolVar(&f.fix, "fix", false, "print what mends everything as one script, and change nothing")
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if f.fix && a.format != "text" {
			return usageError(errors.New("--fix prints a script: leave -o out"))
		}
		target, err := a.doctorTarget(cmd, f)
		if err != nil {
			return err
		}
		return a.diagnose(doctor.Check(cmd.Context(), target), f.fix)
	})
	return cmd
}

// doctorTarget is what the flags name.
func (a *app) doctorTarget(cmd *cobra.Command, f doctorFlags) (doctor.Target, error) {
	kafka := a.kafka.given()
	switch {
	case f.notifyd != "" || f.canald != "":
		if len(f.dsns) > 0 || kafka {
			return doctor.Target{}, usageError(errors.New("--dsn, --kafka and --kafka-config are in the configurations: name the ones or the others"))
		}
		return doctor.FromFiles(f.notifyd, f.canald, os.Environ())
	case len(f.dsns) > 0 || kafka:
		if !kafka {
			return doctor.FromAddresses(f.dsns, mirror.KafkaConfig{}), nil
		}
		at, err := a.kafka.read()
		return doctor.FromAddresses(f.dsns, at), err
	}
	found, err := dev.Find(f.stack)
	if errors.Is(err, fs.ErrNotExist) {
		return doctor.Target{}, daemon.WithExitCode(daemon.ExitNotFound, fmt.Errorf(
			"notify dev never ran here: name --notifyd-config and --canald-config, or --dsn and --kafka, or the --data-dir: %w", err))
	}
	if err != nil {
		return doctor.Target{}, err
	}
	return doctor.FromDev(found), nil
}

// diagnose prints findings, and returns an error with the exit code of the worst.
func (a *app) diagnose(all []finding.Finding, fix bool) error {
	var err error
	if fix {
		_, err = fmt.Fprint(a.out, finding.Script(all))
	} else {
		l := list{name: "findings", columns: []string{"severity", "finding", "mend"}}
		for _, f := range all {
			text := f.Subject
			if f.Why != "" {
				text += ", " + f.Why
			}
			l.add(f, string(f.Severity), text, f.Mend.String())
		}
		err = a.print(l)
	}
	if err != nil {
		return err
	}
	if code := doctor.Exit(all); code != daemon.ExitOK {
		return daemon.WithExitCode(code, errors.New(doctor.Summary(all)))
	}
	a.say("%s", doctor.Summary(all))
	return nil
}
