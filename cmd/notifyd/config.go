package main

import (
	"cmp"
	"maps"
	"os"
	"regexp"
	"slices"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror/limits"
	"notifymirror/notifyd"
	"notifymirror/notifyd/schema/dsn"
)

// defaultOpsListen is where operators find notifyd unless ops_listen says otherwise.
const defaultOpsListen = "127.0.0.1:7701"

// config is everything that notifyd can be told; deploy/notifyd.yaml explains every key.
type config struct {
	Broker          notifyd.Config `yaml:",inline"`
	Kafka           limits.Config  `yaml:"kafka"`
	daemon.Settings `yaml:",inline"`
}

func load(flags daemon.Flags) (config, error) {
	var c config
	err := daemon.Load(flags.Config, os.Environ(), &c)
	c.OpsListen = cmp.Or(c.OpsListen, defaultOpsListen)
	return c, err
}

var storeName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Validate implements daemon.Validator.
func (c *config) Validate() []daemon.Problem {
	problems := c.Settings.Validate(defaultOpsListen, c.Broker.Insecure)
	// The broker checks its own keys when it is made, and opens nothing.
	_, err := notifyd.New(c.Broker, notifyd.Deps{})
	for _, p := range daemon.ProblemsOf(err) {
		if p.Where == "stores" {
			p.Text += daemon.StoresHint
		}
		problems = append(problems, p)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Broker.Stores)) {
		if !storeName.MatchString(name) {
			problems = append(problems, daemon.Problem{Where: "stores." + name,
				Text: "a store's name must be 1 to 63 of the characters a-z 0-9 . _ - and begin with a letter or digit"})
		}
		if _, err := dsn.Parse(c.Broker.Stores[name].DSN); err != nil {
			problems = append(problems, daemon.Problem{Where: "stores." + name + ".dsn", Text: err.Error()})
		}
	}
	for _, err := range c.Kafka.Access.Check() {
		problems = append(problems, daemon.ProblemsOf(err)...)
	}
	return problems
}
