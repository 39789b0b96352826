// Command canald copies the messages of a store from its binlog into Kafka.
package main

import (
	"os"

	"notifymirror/cmd/daemon"
)

func main() { os.Exit(daemon.Main(command(), os.Args[1:], os.Stderr)) }
