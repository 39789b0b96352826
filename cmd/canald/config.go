package main

import (
	"cmp"
	"errors"
	"os"
	"strings"

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
	if c.Mirror.Listen != "" {
		problems = append(problems, daemon.Problem{Where: "listen", Text: "canald has one listener, and its key is ops_listen"})
	}
	for _, err := range flatten(c.Mirror.Check()) {
		text := strings.TrimPrefix(err.Error(), mirror.ErrConfig.Error()+": ")
		key, text, found := strings.Cut(text, ": ")
		if !found {
			key, text = "configuration", key
		}
		problems = append(problems, daemon.Problem{Where: key, Text: text})
	}
	return problems
}

// flatten returns the errors that errors.Join has joined.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
