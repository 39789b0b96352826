package stage

import (
	"fmt"
	"time"

	"notifymirror/notifyd/schema"
)

// AwaitEmpty waits until no message and no delivery is left in the store's tables.
func (s *Stage) AwaitEmpty(limit time.Duration) {
	s.t.Helper()
	db := s.Open()
	Eventually(s.t, limit, "store empty", func() error {
		return s.Empty(db, schema.Message, schema.Pending, schema.DeadLetter)
	})
}

// Empty returns an error when one of the given tables of any shard has a row. db is the
// store, or a transaction in it.
func (s *Stage) Empty(db schema.Querier, tables ...func(shard int) string) error {
	info, err := schema.Read(s.t.Context(), db)
	if err != nil {
		return err
	}
	for shard := range info.Shards {
		for _, table := range tables {
			var n int
			err := db.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM "+table(shard)).Scan(&n)
			if err != nil || n > 0 {
				return fmt.Errorf("table %s: %d rows, error %v", table(shard), n, err)
			}
		}
	}
	return nil
}
