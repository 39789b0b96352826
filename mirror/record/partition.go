package record

import (
	"encoding/binary"
	"strings"
)

// DefaultPrefix stands before the topic's name in Kafka unless configured otherwise.
const DefaultPrefix = "notify."

// TopicName is the Kafka topic of a notify topic: prefix and name. An empty prefix
// means DefaultPrefix.
func TopicName(prefix, topic string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + topic
}

// Collide tells whether two different topic names may not exist side by side:
// Kafka takes "." and "_" for the same character in the names of its metrics.
func Collide(a, b string) bool {
	return a != b && strings.ReplaceAll(a, ".", "_") == strings.ReplaceAll(b, ".", "_")
}

// Partition is the partition, 0 to n-1, that Kafka's Java client gives a record with
// this key on a topic of n partitions. n must be at least 1.
func Partition(key []byte, n int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % n
}

// murmur2 is the 32-bit MurmurHash2 with Kafka's seed.
func murmur2(b []byte) uint32 {
	const m = 0x5bd1e995
	h := 0x9747b28c ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k = (k ^ k>>24) * m
		h = h*m ^ k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
