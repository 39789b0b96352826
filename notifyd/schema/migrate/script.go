package migrate

import (
	"fmt"
	"strings"

	"notifymirror/notifyd/schema"
)

// Script returns the SQL that Migrate would run on an empty schema, for an administrator who
// runs it with the server's own client in the schema that is to be the store. The error says that the number
// of shards is out of range. It stops at a table that is there already. Run on two servers it makes two stores.
func Script(shards int) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "-- A store of %s, schema version %d. Run it in a schema of its own:\n"+
		"--   CREATE DATABASE notify CHARACTER SET utf8mb4; USE notify;\n\n", ShardCount(shards), schema.Latest)
	if err := addVersions(&text, 1, shards); err != nil {
		return "", err
	}
	text.WriteString(strings.Replace(versionTable, "CREATE TABLE IF NOT EXISTS", "CREATE TABLE", 1) + ";\n\n")
	fmt.Fprintf(&text, `SET @position = '';
SET @read = IF(VERSION() LIKE '%%MariaDB%%', 'SELECT @@GLOBAL.gtid_binlog_pos INTO @position',
  'SELECT REPLACE(@@GLOBAL.gtid_executed, CHAR(10), '''') INTO @position');
PREPARE read_position FROM @read;
EXECUTE read_position;
DEALLOCATE PREPARE read_position;

START TRANSACTION;
INSERT INTO store (one, id, shards, installed_at, installed_gtid)
VALUES (1, LOWER(UUID()), %d, %s, @position);
`, shards, schema.NowMicros)
	for shard := range shards {
		for _, statement := range shardRows {
			text.WriteString(strings.Replace(statement, "?", fmt.Sprint(shard), 1) + ";\n")
		}
	}
	addVersionRows(&text, 0)
	text.WriteString("COMMIT;\n")
	return text.String(), nil
}

// UpgradeScript returns the SQL that Migrate would run on a store of version from, 1 to
// schema.Latest-1, with so many shards. On a store of a later version it stops at the first
// column that is there.
func UpgradeScript(from int64, shards int) (string, error) {
	if from < 1 || from >= schema.Latest {
		return "", fmt.Errorf("schema version %d: a store of version 1 to %d can be upgraded", from, schema.Latest-1)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "-- From schema version %d to %d of a store of %s. Run it in the store's schema.\n\n", from, schema.Latest, ShardCount(shards))
	if err := addVersions(&text, from+1, shards); err != nil {
		return "", err
	}
	addVersionRows(&text, from+1)
	return text.String(), nil
}

// addVersions adds the DDL of the versions from first on.
func addVersions(text *strings.Builder, first int64, shards int) error {
	for version := first; version <= schema.Latest; version++ {
		statements, err := schema.Statements(version, shards)
		if err != nil {
			return err
		}
		for _, s := range statements {
			text.WriteString(strings.Replace(s, "CREATE TABLE IF NOT EXISTS", "CREATE TABLE", 1) + ";\n\n")
		}
	}
	return nil
}

func addVersionRows(text *strings.Builder, first int64) {
	for version := first; version <= schema.Latest; version++ {
		fmt.Fprintf(text, "INSERT INTO %s (version_id, is_applied) VALUES (%d, TRUE);\n", schema.TableVersion, version)
	}
}

// ShardCount is a number of shards in words.
func ShardCount(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}
