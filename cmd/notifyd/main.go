// Command notifyd is the broker: it stores messages and pushes them to consumer groups.
package main

import (
	"os"

	"notifymirror/cmd/daemon"
)

func main() { os.Exit(daemon.Main(command(), os.Args[1:], os.Stderr)) }
