// Package window adds up events in windows of event time. It is pure: values go in,
// values come out; it has no clock, no goroutine and no I/O, and knows no Kafka.
//
//	Event ─ Add ─> spans of its time ─ open ──> cell of (window, key) ─ Due ─> Result
//	                  │                           count, sum, min, max, distinct
//	                  └─ closed: late, for the caller to route
//
//	event times of each input ─> watermark = the slowest input's latest time - Lateness
//	a window is closed when the watermark has reached its end
//
// What it promises:
//   - An event is in each of its windows that is open, and is reported late for each that
//     is closed: never lost in silence, never in a window that was handed out.
//   - A window is handed out once, by Due, when it is closed.
//   - Sums are exact, of integers in minor units (cents); an overflow is an error.
//   - An error changes nothing: the event is not counted anywhere.
//   - State is bounded: more than MaxCells keys in all open windows are an error.
//   - Snapshot and Restore give the same state again, so that state and the offsets of
//     what made it can be saved together (stream.Processor does that in one transaction).
//
// Files: window.go, span.go (which windows a time is in), aggregate.go, snapshot.go,
// metrics.go (what a caller may tell Prometheus of them), errors.go.
//
// Not obvious:
//   - Event time moves by events only. While nothing comes, no window closes; a caller
//     that knows that an input has nothing older says so by Advance.
//   - With several inputs (partitions) the slowest decides: a replay reads some ahead of
//     others, and their events are not late for that. No window closes before each of
//     Inputs was heard of.
//   - One event from far in the future closes all windows before it. Check times first
//     where producers' clocks are not trusted; the mirror's commit times are the store's.
//   - A distinct count is an estimate (HyperLogLog, 2^12 registers: a standard error of
//     1.6 %), and costs up to 4 KiB per key and window.
package window
