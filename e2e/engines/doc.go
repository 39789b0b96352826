// Package engines starts Apache Kafka for tests: a single node, controller and broker in one
// process, on 127.0.0.1. deploy/install/kafka.sh fetches its jars; real MySQL is started by
// notifyd/embedded, as any server is.
//
// # Not obvious
//
//   - The broker dies with us, however we end (package child).
//   - A log directory is formatted once, which takes a second Java process about 2 s; it is
//     written beside and renamed.
//   - The offsets and transaction topics get 4 partitions instead of 50: on a test machine
//     most of a broker's start would be theirs.
//   - After a kill the controller does not let the broker in before the old one's session has
//     expired. It is 2 s here instead of 9 s, and a start waits until partitions have leaders:
//     an answering port is not enough.
package engines
