// Package mirror copies a store's committed messages from its binlog into Kafka, exactly
// once and in commit order.
package mirror
