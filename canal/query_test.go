package canal

import "testing"

func TestTheTextOfAQueryEventIsUnderstood(t *testing.T) {
	cases := []struct {
		text string
		kind statement
		name string
	}{
		{"BEGIN", beginStatement, ""}, {"begin", beginStatement, ""},
		{"COMMIT", commitStatement, ""}, {"/* app */ commit", commitStatement, ""},
		{"ROLLBACK", rollbackStatement, ""},
		{"SAVEPOINT `x``Y`", savepointStatement, "x`y"}, {"savepoint A", savepointStatement, "a"},
		{"ROLLBACK TO `x`", rollbackToStatement, "x"}, {"rollback to savepoint x;", rollbackToStatement, "x"},
		{"ROLLBACK TO savepoint", rollbackToStatement, "savepoint"},
		{"RELEASE SAVEPOINT x", otherStatement, ""},
		{"XA START X'31',X'',1", xaStartStatement, ""}, {"XA END X'31',X'',1", xaEndStatement, ""},
		{"XA COMMIT X'31',X'',1", xaDecisionStatement, ""}, {"XA ROLLBACK X'31',X'',1", xaDecisionStatement, ""},
		{"CREATE TABLE a (b INT)", otherStatement, ""}, {"/*!50001 CREATE VIEW v AS SELECT 1 */", otherStatement, ""},
		{"-- note\n# more\n drop table a", otherStatement, ""}, {"TRUNCATE a", otherStatement, ""}, {"SET PASSWORD = 'x'", otherStatement, ""},
		{"# Dummy event replacing event type 160 that slave cannot handle.", emptyStatement, ""}, {"", emptyStatement, ""}, {" /* only */ ", emptyStatement, ""},
		{"INSERT INTO a VALUES (1)", dataStatement, ""}, {"/* x */ replace a select 1", dataStatement, ""}, {"(SELECT f())", dataStatement, ""},
		{"UPDATE a SET b=1", dataStatement, ""}, {"DELETE FROM a", dataStatement, ""}, {"LOAD DATA INFILE 'x' INTO TABLE a", dataStatement, ""},
		{"WITH c AS (SELECT 1) DELETE FROM a", dataStatement, ""}, {"/*!40000 INSERT INTO a VALUES (1) */", dataStatement, ""},
		{"/*M!100100 INSERT INTO a VALUES (1) */", dataStatement, ""}, {"SET STATEMENT max_statement_time=1 FOR INSERT INTO a VALUES (1)", dataStatement, ""},
		{"CALL p()", dataStatement, ""}, {"?", dataStatement, ""}, {"INSERTED", dataStatement, ""},
	}
	for _, c := range cases {
		if kind, name := readStatement([]byte(c.text)); kind != c.kind || name != c.name {
			t.Errorf("%q: %d %q, want %d %q", c.text, kind, name, c.kind, c.name)
		}
	}
}

func TestASchemaIsMentionedOnlyAsAWordOfItsOwn(t *testing.T) {
	for text, want := range map[string]bool{
		"INSERT INTO notify.a VALUES (1)": true, "insert into `NOTIFY`.`a`": true, "INSERT INTO a SELECT * FROM notify.b": true, "notify": true,
		"INSERT INTO notify_2.a": false, "INSERT INTO xnotify.a": false, "INSERT INTO a": false, "INSERT INTO notify2.a, notify.b": true, "": false,
	} {
		if mentions([]byte(text), "Notify") != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}
