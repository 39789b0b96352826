package stage

import (
	"database/sql"
	"fmt"
	"time"

	"notifymirror/notifyd/schema"
)

// AwaitEmpty waits until no message and no delivery is left in the store's tables.
func (s *Stage) AwaitEmpty(limit time.Duration) {
	s.t.Helper()
	db := s.Open()
	info, err := schema.Read(s.t.Context(), db)
	if err != nil {
		s.t.Fatal(err)
	}
	Eventually(s.t, limit, "store empty", func() error {
		for shard := range info.Shards {
			for _, table := range []string{schema.Message(shard), schema.Pending(shard), schema.DeadLetter(shard)} {
				if n, err := s.count(db, table); err != nil || n > 0 {
					return fmt.Errorf("table %s: %d rows, error %v", table, n, err)
				}
			}
		}
		return nil
	})
}

func (s *Stage) count(db *sql.DB, table string) (n int, err error) {
	err = db.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n)
	return n, err
}
