// Package board is the live board: web pages that show what comes through a topic of the
// mirror, as it comes.
//
//	Kafka ─ stream.Consumer ─> read ─> tally ─(10 a second)─> frame ─ feed ─> events ─> page
//	                           pure    pure                   JSON    latest  SSE
//
// A board counts messages, or adds up an amount of theirs, from the beginning of its period
// on: in all, by second, and by the values of fields. The server adds up; a page gets ten
// frames a second at most, each of them whole, whatever the rate of messages is.
//
// What it promises:
//   - A number that stands still does not look alive: each frame says up to which instant it
//     is known to be whole, and a page whose numbers are older than 3 s, for whatever reason,
//     is grey and says since when.
//   - No dip: nothing is shown before the history of the period is read, after a restart too.
//   - Amounts are whole minor units from the message to the page, and exact.
//   - Memory is bounded: per value of a field up to Values, per page one frame.
//   - A slow page holds nobody up; it gets fewer frames, and the latest.
//
// Files: config.go; field.go, filter.go, amount.go, since.go (what a configuration may say),
// message.go, tally.go, ranking.go, curve.go (pure: what is counted), frame.go (what a page
// gets); live.go (one board at work), partitions.go, sources.go (canalds and brokers),
// truth.go (the log read again), feed.go, events.go, server.go, metrics.go; page/ (what the
// browser loads; uPlot 1.6.32 is in it as it was published, under its licence).
//
// Not obvious:
//   - Where no canald is configured, a topic on which nothing comes cannot be told from a
//     mirror that is down: the page grows grey. With canalds it stays alive, while the mirrors of
//     all stores that they name do.
//   - A store whose clock is behind makes a board look older than it is, never younger.
//   - A period moves on with the clock and with the records, whichever is ahead: a message of
//     the new day that comes before our midnight is not lost by beginning anew.
//   - The rows of a field are exact until it has 2*Values values. Then the small ones go to
//     "other", and what is shown is a lower bound; the total is always exact.
//   - The history is read in one go at each start, and nothing is kept of it: a long period of a
//     large topic is read for long. A board on all of a topic is for short retentions.
//   - Where Kafka's retention takes records of the period, they stay in a running board's total
//     and are missing in that of a board that starts later, and in the check against the log.
//   - The page takes the least time that a frame was on its way as none: a page behind a slow
//     line shows that delay as 0, but what comes on top of it as age.
package board
