package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNoSemiSync is returned when a server does not wait for a replica at COMMIT, whether one is
// attached or not. The text behind it says how to mend that.
var ErrNoSemiSync = errors.New("the store's server has no semi-synchronous replication switched on")

// A SemiSync is what a server says of its semi-synchronous replication at one moment.
type SemiSync struct {
	// On: a COMMIT waits for a replica. The server ends that itself when none has acknowledged
	// within its timeout, and begins again when one has caught up.
	On bool
	// Replicas are attached and able to acknowledge.
	Replicas int64
	// Missed counts commits that no replica acknowledged, since the server started.
	Missed int64
}

// Acknowledging reports whether a COMMIT may hope for an acknowledgement now. A server stays on
// without a replica until a COMMIT has waited for its whole timeout.
func (s SemiSync) Acknowledging() bool { return s.On && s.Replicas > 0 }

// Covers reports whether every COMMIT between this reading and a later one of the same server
// was acknowledged.
func (s SemiSync) Covers(later SemiSync) bool { return s.On && later.On && s.Missed == later.Missed }

// String is for people.
func (s SemiSync) String() string {
	if !s.On {
		return "semi-synchronous replication is off"
	}
	return fmt.Sprintf("semi-synchronous replication is on with %d replicas attached", s.Replicas)
}

// SemiSync reads the status of the server to which this connection leads. An error of it is ErrUnknown.
func (w *Writer) SemiSync(ctx context.Context) (SemiSync, error) {
	ctx, cancel := context.WithTimeout(ctx, txnTimeout)
	defer cancel()
	s, err := readSemiSync(ctx, w.conn)
	if err != nil {
		return s, unknown(err)
	}
	return s, nil
}

// SemiSync reads the server's status.
func (s *Store) SemiSync(ctx context.Context) (SemiSync, error) { return readSemiSync(ctx, s.db) }

// Prefixes of the variables: MySQL's, then those of MariaDB and of the plugin that MySQL had first.
var semiSyncPrefixes = [...]string{"rpl_semi_sync_source_", "rpl_semi_sync_master_"}

func readSemiSync(ctx context.Context, q querier) (s SemiSync, err error) {
	status, err := readVariables(ctx, q, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%'")
	if err != nil {
		return s, fmt.Errorf("status of semi-synchronous replication: %w", err)
	}
	for _, prefix := range semiSyncPrefixes {
		if _, ok := status[prefix+"status"]; !ok {
			continue
		}
		s.On = status[prefix+"status"] == "ON"
		s.Replicas, err = strconv.ParseInt(status[prefix+"clients"], 10, 64)
		if err == nil {
			s.Missed, err = strconv.ParseInt(status[prefix+"no_tx"], 10, 64)
		}
		if err != nil {
			return s, fmt.Errorf("status of semi-synchronous replication: %w", err)
		}
		return s, nil
	}
	return s, nil
}

// readVariables reads rows of a name and a value, the names in lower case.
func readVariables(ctx context.Context, q querier, query string) (map[string]string, error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		out[strings.ToLower(name)] = value
	}
	return out, rows.Err()
}

// CanReplicate returns ErrNoSemiSync when the server has semi-synchronous replication not
// installed or not switched on, and nil also while no replica is attached.
func (s *Store) CanReplicate(ctx context.Context) error {
	vars, err := readVariables(ctx, s.db, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_%_enabled'")
	if err != nil {
		return fmt.Errorf("settings of semi-synchronous replication: %w", err)
	}
	for _, prefix := range semiSyncPrefixes {
		name := prefix + "enabled"
		switch value, ok := vars[name]; {
		case ok && value == "ON":
			return nil
		case ok:
			return fmt.Errorf("%w: SET GLOBAL %s = ON, and the same in its configuration file", ErrNoSemiSync, name)
		}
	}
	return fmt.Errorf("%w: INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so', then SET PERSIST rpl_semi_sync_source_enabled = ON", ErrNoSemiSync)
}
