// Command canald copies the messages of stores from their binlogs into Kafka.
package main

import (
	"os"

	"notifymirror/cmd/daemon"
)

func main() { os.Exit(daemon.Main(command(), os.Args[1:], os.Stderr)) }
