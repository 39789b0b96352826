package preflight

import (
	"context"
	"fmt"
	"time"
)

// clockTolerance is how far the server's clock may be from ours.
const clockTolerance = time.Second

// clock warns where the server's clock and this machine's differ. The shortest of a few
// questions tells best.
func (c *checker) clock(ctx context.Context) error {
	offset, within := time.Duration(0), time.Duration(1<<62)
	for range 3 {
		var micros int64
		asked := time.Now()
		err := c.conn.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").Scan(&micros)
		if err != nil {
			return fmt.Errorf("clock: %w", err)
		}
		if took := time.Since(asked); took < within {
			offset, within = time.UnixMicro(micros).Sub(asked.Add(took/2)), took
		}
	}
	if offset.Abs() > clockTolerance+within/2 {
		c.report.warn(fmt.Sprintf("the clock of %s differs from this machine's by %s", c.cfg.Addr, offset.Round(time.Millisecond)),
			"so delays that are counted across the two are wrong by as much",
			do("have both follow the same time servers (chrony or ntpd)"))
	}
	return nil
}
