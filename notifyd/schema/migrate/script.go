package migrate

import (
	"fmt"
	"slices"
	"strings"

	"notifymirror/notifyd/schema"
)

// Script returns the SQL that Migrate would run on an empty schema, for an administrator who runs it with the
// server's own client in the schema that is to be the store. shards 0 means
// schema.DefaultShards; the error says that the number is out of range. It stops at a table that is
// there already. Run twice on different servers it makes different stores.
func Script(shards int) (string, error) {
	if shards == 0 {
		shards = schema.DefaultShards
	}
	tables, err := schema.Statements(shards)
	if err != nil {
		return "", err
	}
	settings, err := schema.SettingsStatements(shards)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "-- A store of %s, schema version %d. Run it in a schema of its own:\n"+
		"--   CREATE DATABASE notify CHARACTER SET utf8mb4; USE notify;\n\n", plural(shards, "shard"), schema.Latest)
	for _, s := range slices.Concat(tables, settings) {
		text.WriteString(strings.Replace(s, "CREATE TABLE IF NOT EXISTS", "CREATE TABLE", 1) + ";\n\n")
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
	for version := range schema.Latest + 1 {
		fmt.Fprintf(&text, "INSERT INTO %s (version_id, is_applied) VALUES (%d, TRUE);\n", schema.TableVersion, version)
	}
	text.WriteString("COMMIT;\n")
	return text.String(), nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
