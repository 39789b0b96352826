package main

import (
	"github.com/spf13/cobra"

	"notifymirror/cmd/daemon"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: a.action(func(*cobra.Command, []string) error {
			b := daemon.ReadBuild()
			return a.printOne(map[string]string{"version": b.Version, "revision": b.Revision, "go": b.GoVersion},
				"version", b.Version, "revision", b.Revision, "go", b.GoVersion)
		}),
	}
}
