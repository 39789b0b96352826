package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOnlyNamesOfMessageTablesAreRead(t *testing.T) {
	for shard := range MaxShards {
		if got, ok := ParseMessage(Message(shard)); !ok || got != shard {
			t.Errorf("%s is read as shard %d, %t", Message(shard), got, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`(message|pending|half|MESSAGE)?_?[0-9a]{0,3}`).Draw(t, "name")
		shard, ok := ParseMessage(name)
		if ok && Message(shard) != name {
			t.Fatalf("%q is read as shard %d", name, shard)
		}
	})
}

func TestMessageColumnsAreInTheirOrder(t *testing.T) {
	columns := MessageColumns()
	if len(columns) != MessageColumnCount {
		t.Errorf("%d names, %d ordinals", len(columns), MessageColumnCount)
	}
	for ordinal, name := range map[int]string{MessagePos: "pos", MessageID: "id", MessageTopic: "topic", MessageKey: "msg_key",
		MessageHeaders: "headers", MessageBody: "body", MessageMirrored: "mirrored", MessageBornAt: "born_at"} {
		if columns[ordinal] != name {
			t.Errorf("column %d is %s, its ordinal is of %s", ordinal, columns[ordinal], name)
		}
	}
	columns[0] = "changed"
	if MessageColumns()[0] != "pos" {
		t.Error("a caller can change the list")
	}
}

func TestEveryStatementCanBeRunAgain(t *testing.T) {
	for _, shards := range []int{1, 8, MaxShards} {
		statements, err := Statements(1, shards)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range statements {
			if !strings.HasPrefix(s, "CREATE TABLE IF NOT EXISTS ") || strings.ContainsAny(s, ";{}") {
				t.Errorf("statement: %s", s)
			}
		}
		var later []string
		for version := int64(2); version <= Latest; version++ {
			more, err := Statements(version, shards)
			if err != nil {
				t.Fatal(err)
			}
			later = append(later, more...)
		}
		for _, s := range later {
			if !strings.HasPrefix(s, "ALTER TABLE ") || strings.Count(s, " ADD ") != 1 || strings.ContainsAny(s, ";{}") || strings.Contains(s, "message_") {
				t.Errorf("statement: %s", s)
			}
		}
		for shard := range shards {
			for _, name := range []string{Message(shard), Pending(shard), DeadLetter(shard), Half(shard)} {
				if !slices.ContainsFunc(statements, func(s string) bool { return strings.HasPrefix(s, "CREATE TABLE IF NOT EXISTS "+name+" (") }) {
					t.Errorf("no statement makes %s", name)
				}
			}
		}
	}
	for _, shards := range []int{-1, 0, MaxShards + 1} {
		if _, err := Statements(1, shards); err == nil || !strings.Contains(err.Error(), fmt.Sprint(shards)) {
			t.Errorf("%d shards: %v", shards, err)
		}
	}
	for _, version := range []int64{0, Latest + 1} {
		if _, err := Statements(version, 1); err == nil {
			t.Errorf("statements of version %d", version)
		}
	}
}
