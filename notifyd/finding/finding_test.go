package finding

import "testing"

func TestScriptHasStatementsForTheServerThenCommandsThenWhatIsDoneByHand(t *testing.T) {
	all := []Finding{
		{Severity: Note, Subject: "the disk of /x has 1 MiB free", Why: "too few", Mend: Mend{How: "make room there"}},
		{Severity: Warning, Subject: "topic t has cleanup.policy=delete", Why: "so it is lost", Mend: Mend{How: "type", Shell: []string{"kafka-configs.sh --alter"}}},
		{Severity: Error, Subject: "db has gtid_mode=OFF", Mend: Mend{How: "type", SQL: []string{"SET GLOBAL a = 1", "SET GLOBAL b = 2"}, Also: "and put a = 1 into my.cnf"}},
	}
	Sort(all)
	want := `-- On the store's server, as an administrator:
-- db has gtid_mode=OFF
-- put a = 1 into my.cnf
SET GLOBAL a = 1;
SET GLOBAL b = 2;
# On a machine with Kafka's tools:
# topic t has cleanup.policy=delete
# so it is lost
kafka-configs.sh --alter
# By hand:
# the disk of /x has 1 MiB free, too few: make room there
`
	if got := Script(all); got != want {
		t.Errorf("script:\n%s\nwant:\n%s", got, want)
	}
	if got, want := all[0].String(), "db has gtid_mode=OFF: type: SET GLOBAL a = 1; SET GLOBAL b = 2 and put a = 1 into my.cnf"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if got := Script(nil); got != "" {
		t.Errorf("script of nothing: %q", got)
	}
}
