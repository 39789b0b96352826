package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"notifymirror/cmd/daemon"
	"notifymirror/notifyd"
	"notifymirror/notifyd/schema/dsn"
)

const (
	// defaultListen is the broker's own default, for the check of the address.
	defaultListen = "127.0.0.1:7700"
	// defaultOpsListen is where operators find notifyd unless ops_listen says otherwise.
	defaultOpsListen = "127.0.0.1:7701"
)

// config is everything that notifyd can be told; deploy/notifyd.yaml explains every key.
type config struct {
	Broker          notifyd.Config `yaml:",inline"`
	daemon.Settings `yaml:",inline"`
}

func load(flags daemon.Flags) (config, error) {
	var c config
	err := daemon.Load(flags.Config, os.Environ(), &c)
	c.OpsListen = cmp.Or(c.OpsListen, defaultOpsListen)
	return c, err
}

// store returns the store's name and configuration; a valid configuration has exactly one.
func (c config) store() (string, notifyd.StoreConfig) {
	for name, store := range c.Broker.Stores {
		return name, store
	}
	return "", notifyd.StoreConfig{}
}

var (
	brokerID  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	storeName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
)

// Validate implements daemon.Validator.
func (c *config) Validate() []daemon.Problem {
	b := c.Broker
	problems := c.Settings.Validate(defaultOpsListen, b.Insecure)
	problems = append(problems, daemon.CheckListen("listen", cmp.Or(b.Listen, defaultListen), b.Insecure)...)
	bad := func(key, format string, args ...any) {
		problems = append(problems, daemon.Problem{Where: key, Text: fmt.Sprintf(format, args...)})
	}
	if b.ID != "" && !brokerID.MatchString(b.ID) {
		bad("id", "%q: must be 1 to 64 of the characters A-Z a-z 0-9 . _ -", b.ID)
	}
	if len(b.Stores) != 1 {
		bad("stores", "there are %d, and this version works with exactly one: stores: {a: {dsn: %s}}", len(b.Stores), dsn.Form)
	}
	for _, name := range slices.Sorted(maps.Keys(b.Stores)) {
		if !storeName.MatchString(name) {
			bad("stores."+name, "a store's name must be 1 to 63 of the characters a-z 0-9 . _ - and begin with a letter or digit")
		}
		if _, err := dsn.Parse(b.Stores[name].DSN); err != nil {
			bad("stores."+name+".dsn", "%s", err)
		}
	}
	if b.RetryMin > 0 && b.RetryMax > 0 && b.RetryMin > b.RetryMax {
		bad("retry_min", "%s is above retry_max, %s", b.RetryMin, b.RetryMax)
	}
	return problems
}
