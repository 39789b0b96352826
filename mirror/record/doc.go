// Package record is the format of a mirrored message in Kafka, and of its headers
// in the store. It is pure: it knows no Kafka client and no database, only bytes.
//
//	message table            Record                      Message
//	(headers as JSON) ---------------> key, value, ------------> what a reader
//	          DecodeHeaders, Encode    headers, timestamp Decode sees
//
// Files: record.go (the layout and its encoder), arena.go (many records in one piece of
// memory), decode.go, size.go (what a record takes in a batch), headers.go (header text of the store), partition.go (topic names
// and partitions), errors.go.
//
// Not obvious:
//   - A record's key is never null: an unkeyed message has its id's text as the key,
//     so that unkeyed messages spread over all partitions. A message whose own key
//     is the text of its id therefore reads back as unkeyed.
//   - A value is never null: an empty body is an empty value, since a null value is a
//     tombstone where a topic is compacted.
//   - notify-source and notify-seq name a record for good within a generation: a
//     reader that does not read committed records only drops what it has seen by them.
//   - Kafka keeps timestamps in milliseconds; delays are measured from notify-born-at.
//   - Readers ignore notify-* headers that they do not know: later versions may add some.
//   - Header text has one canonical form (names ascending, no white space, escapes only
//     where JSON demands them); it is what EncodeHeaders writes, and the fast path of
//     DecodeHeaders. Other valid JSON is read too: applications write outbox rows by hand.
package record
