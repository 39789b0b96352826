// Package doctor looks at everything that a running installation stands on: the servers of
// its stores, the daemons' accounts, Kafka and its topics, clocks and disks. It changes
// nothing. What it has to say are findings (package finding): how much it matters, why, and
// the statement that mends it.
//
// Files: doctor.go (what is looked at), source.go (where the addresses come from), kafka.go
// (Kafka's questions), topics.go and brokers.go (rules for what it answered; pure), place.go
// (clocks of the daemons, disks).
//
// Not obvious:
//
//   - The rules for a store's server and accounts are those of package preflight, which the
//     daemons ask before they start. Notes are shown only here.
//   - Clocks are compared with that of this machine. Kafka tells nobody its time, so its clock
//     is not looked at.
//   - A disk can be seen only on this machine: the daemons' directories, and the data
//     directory of a server at a loopback address.
//   - Two configurations that name the same server give each finding once.
package doctor
