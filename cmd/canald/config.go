package main

import (
	"cmp"
	"errors"
	"os"

	"notifymirror/cmd/daemon"
	"notifymirror/mirror"
)

// defaultOpsListen is where operators find canald unless ops_listen says otherwise.
const defaultOpsListen = "127.0.0.1:7711"

// config is everything that canald can be told; deploy/canald.yaml explains every key.
type config struct {
	Mirror          mirror.Config `yaml:",inline"`
	daemon.Settings `yaml:",inline"`
}

func load(flags daemon.Flags) (config, error) {
	var c config
	err := daemon.Load(flags.Config, os.Environ(), &c)
	c.OpsListen = cmp.Or(c.OpsListen, defaultOpsListen)
	return c, err
}

// Validate implements daemon.Validator.
func (c *config) Validate() []daemon.Problem {
	problems := c.Settings.Validate(defaultOpsListen, c.Mirror.Insecure)
	for _, p := range daemon.ProblemsOf(c.Mirror.Check()) {
		if p.Where == mirror.ErrConfig.Error() { // the sentinel stands before the key
			p = daemon.ProblemsOf(errors.New(p.Text))[0]
		}
		if p.Where == "stores" {
			p.Text += daemon.StoresHint
		}
		problems = append(problems, p)
	}
	return problems
}
