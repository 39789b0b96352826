package schema

import (
	"fmt"
	"strings"
)

const (
	// DefaultShards is the number of shards of a store for which none was asked.
	DefaultShards = 8
	// MaxShards is the largest number of shards of a store: table names have two digits.
	MaxShards = 100
)

// Names of the tables that exist once. Those of a shard are made by Message, Pending,
// DeadLetter and Half.
const (
	TableStore          = "store"
	TableHalfDecision   = "half_decision"
	TableOutbox         = "outbox"
	TableOutboxRejected = "outbox_rejected"
	TableDedup          = "dedup"
	TableEpoch          = "epoch"
	TableLease          = "lease"
	TableSettled        = "settled"
	TableTopic          = "registry_topic"
	TableGroup          = "registry_group"
	TableSubscription   = "registry_subscription"
	TableSetting        = "registry_setting"
	TablePlacement      = "registry_placement"
	TableBroker         = "registry_broker"
	// TableVersion holds one row per applied migration; it is the migration library's.
	TableVersion = "schema_version"
)

// MessageColumnList names the columns of a message table in their order in the table, for
// SQL text.
const MessageColumnList = "pos, id, topic, msg_key, headers, body, mirrored, born_at"

// Ordinals of the columns of a message table, as they come in a full row image.
const (
	MessagePos = iota
	MessageID
	MessageTopic
	MessageKey
	MessageHeaders
	MessageBody
	MessageMirrored
	MessageBornAt
	// MessageColumnCount is the number of columns of a message table.
	MessageColumnCount
)

// NowMicros is the SQL expression of the store's clock in microseconds since 1970 UTC. It
// does not depend on the session's time zone and has no daylight saving gap.
const NowMicros = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"

// MessageColumns returns the names in MessageColumnList.
func MessageColumns() []string { return strings.Split(MessageColumnList, ", ") }

// Message returns the name of a shard's message table, such as message_00.
func Message(shard int) string { return table("message", shard) }

// Pending returns the name of the table of a shard's pending deliveries.
func Pending(shard int) string { return table("pending", shard) }

// DeadLetter returns the name of a shard's table of dead letters.
func DeadLetter(shard int) string { return table("dead_letter", shard) }

// Half returns the name of a shard's table of prepared messages.
func Half(shard int) string { return table("half", shard) }

// ParseMessage returns the shard of a message table's name, and false for any other name.
func ParseMessage(name string) (shard int, ok bool) {
	digits, found := strings.CutPrefix(name, "message_")
	if !found || len(digits) != 2 || !isDigit(digits[0]) || !isDigit(digits[1]) {
		return 0, false
	}
	return int(digits[0]-'0')*10 + int(digits[1]-'0'), true
}

// table returns the name of one of a shard's tables. A shard outside [0, MaxShards) is a
// fault of the caller.
func table(kind string, shard int) string {
	if shard < 0 || shard >= MaxShards {
		panic(fmt.Sprintf("schema: shard %d is outside 0 to %d", shard, MaxShards-1))
	}
	return fmt.Sprintf("%s_%02d", kind, shard)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
