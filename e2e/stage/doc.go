// Package stage is what end-to-end stories play on: a store, a Kafka, and the programs
// notifyd, canald and notify as they are built from this tree.
//
//	s := stage.New(t)
//	a := s.Notifyd("a").Start()
//	mirror := s.Canald("one").Start()
//	...
//	a.Kill()
//
// Files: build.go (the programs), stage.go (store and Kafka), breakable.go (the same, to be
// restarted, over the lines of line.go, to be cut), program.go (one daemon's life),
// command.go (programs that end by themselves), api.go (the brokers' API without our client),
// group.go and load.go (consumers and producers that keep accounts), store.go, binlog.go and
// kafka.go (what the store and the mirror really hold, the latter two read by clients that are
// not ours), wait.go (conditions with a deadline), random.go (seeds).
//
// Not obvious:
//
//   - Programs die with the test binary, however it ends.
//   - A daemon keeps its ports over restarts, as it would in the field.
//   - A store is a schema of its own on the test binary's database server, so the binlog also
//     holds the traffic of other stories.
//   - With a Kafka that is shared (NOTIFY_TEST_KAFKA) every stage has its own cluster name and
//     topic prefix.
//   - Servers are shared with other stories, except those of a Breakable.
package stage
