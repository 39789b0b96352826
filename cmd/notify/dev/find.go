package dev

import (
	"path/filepath"

	"notifymirror/notifyd/embedded"
)

// Addresses are where the parts of a stack are.
type Addresses struct {
	Dir, DSN, Kafka string
	// BrokerOps and MirrorOps are the ops addresses.
	BrokerOps, MirrorOps string
}

// Find returns where the parts of the stack are that runs, or ran last, with this
// configuration. It makes and starts nothing; the error wraps fs.ErrNotExist where none ever ran.
func Find(cfg Config) (Addresses, error) {
	dir := cfg.DataDir
	if dir == "" {
		var err error
		if dir, err = defaultDir(); err != nil {
			return Addresses{}, err
		}
	}
	p := portsFrom(cfg.BasePort)
	dsn, err := embedded.DSN(filepath.Join(dir, "database"), p.database, schemaName)
	if err != nil {
		return Addresses{}, err
	}
	return Addresses{Dir: dir, DSN: dsn, Kafka: addr(p.kafka), BrokerOps: addr(p.ops), MirrorOps: addr(p.mirrorOps)}, nil
}
