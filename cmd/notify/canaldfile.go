package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"notifymirror/cmd/daemon"
	"notifymirror/cmd/notify/dev"
	"notifymirror/mirror"
)

// canaldFile is canald's configuration.
type canaldFile struct {
	Mirror          mirror.Config `yaml:",inline"`
	daemon.Settings `yaml:",inline"`
}

// loadCanald reads canald's configuration as canald would, and the name of one of its stores,
// which may be left out where there is one only. Without a path it is that of notify dev.
func loadCanald(path, store string) (c mirror.Config, name string, err error) {
	if c, err = readCanald(path); err != nil {
		return c, "", err
	}
	names := c.StoreNames()
	if store == "" && len(names) == 1 {
		return c, names[0], nil
	}
	if !slices.Contains(names, store) {
		return c, "", usageError(fmt.Errorf("--store %q: name one of %s", store, strings.Join(names, ", ")))
	}
	return c, store, nil
}

func readCanald(path string) (mirror.Config, error) {
	if path == "" {
		return devMirror()
	}
	var f canaldFile
	if err := daemon.Load(path, os.Environ(), &f); err != nil {
		return mirror.Config{}, err
	}
	return f.Mirror, daemon.WithExitCode(daemon.ExitUsage, f.Mirror.Check())
}

// devMirror is the mirror of the stack of notify dev that runs, or ran last.
func devMirror() (mirror.Config, error) {
	found, err := dev.Find(dev.Config{BasePort: 7700})
	if errors.Is(err, fs.ErrNotExist) {
		return mirror.Config{}, usageError(fmt.Errorf("--config is missing: name canald's configuration; and notify dev never ran here: %w", err))
	}
	if err != nil {
		return mirror.Config{}, err
	}
	return mirror.Config{
		Stores: map[string]mirror.StoreConfig{"dev": {DSN: found.DSN}},
		Kafka:  mirror.KafkaConfig{Brokers: []string{found.Kafka}, AllowEmbedded: true},
	}, nil
}
