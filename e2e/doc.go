// Package e2e tells stories of the whole product, played with the real programs on a real
// database and a Kafka. One file is one promise; package stage sets the scene, and package bank is
// the applications of one story.
//
// Random stories print their seed: NOTIFY_SEED replays one, NOTIFY_SOAK makes all that many times
// as long.
//
// NOTIFY_TEST_MYSQLD names a database server's binary, NOTIFY_TEST_KAFKA the address of a
// Kafka: both are then used instead of the MariaDB that is found and the embedded Kafka.
package e2e
