package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDoctorSaysWhatIsWrongWithAKafkaAndHowToMendIt(t *testing.T) {
	kafka := mirrored(t, 1) // made without room for the largest message
	r := notify(t, "", "doctor", "--kafka", kafka)
	if r.code != 3 || !strings.Contains(r.err, "errors: 0, warnings: 1, notes: 1") {
		t.Errorf("exit %d, stderr %q", r.code, r.err)
	}
	if first, _, _ := strings.Cut(r.out, "\n"); strings.Count(first, "\t") != 2 || !strings.HasPrefix(first, "warning\ttopic notify.t has max.message.bytes=") {
		t.Errorf("stdout %q", r.out)
	}
	const mend = "--alter --entity-type topics --entity-name notify.t --add-config max.message.bytes=4259840"
	fix := notify(t, "", "doctor", "--kafka", kafka, "--fix")
	if !strings.Contains(fix.out, "\nkafka-configs.sh --bootstrap-server "+kafka+" "+mend+"\n") || fix.code != 3 {
		t.Errorf("exit %d, script %q", fix.code, fix.out)
	}
	var report struct {
		Findings []struct {
			Severity string `json:"severity"`
			Mend     struct {
				Shell []string `json:"shell"`
			} `json:"mend"`
		} `json:"findings"`
	}
	asJSON := notify(t, "", "doctor", "--kafka", kafka, "-o", "json")
	if err := json.Unmarshal([]byte(asJSON.out), &report); err != nil || len(report.Findings) != 2 {
		t.Fatalf("%v: %s", err, asJSON.out)
	}
	if f := report.Findings[0]; f.Severity != "warning" || len(f.Mend.Shell) != 1 || !strings.HasSuffix(f.Mend.Shell[0], mend) {
		t.Errorf("first finding %+v", f)
	}
}

func TestDoctorEndsWithTheCodeOfTheWorstFinding(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{6, "errors: 1,", []string{"--kafka", "127.0.0.1:1"}},
		{6, "errors: 1,", []string{"--dsn", "u:p@tcp(127.0.0.1:1)/notify"}},
		{2, "errors: 1,", []string{"--dsn", "nonsense"}},
		{2, "no such file", []string{"--canald-config", "/nonexistent"}},
		{2, "name the ones or the others", []string{"--canald-config", "/nonexistent", "--dsn", "x"}},
		{2, "leave -o out", []string{"--fix", "-o", "json"}},
		{4, "notify dev never ran here", []string{"--data-dir", empty}},
	} {
		if r := notify(t, "", append([]string{"doctor"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.text) {
			t.Errorf("%q: exit %d, stderr %q; want %d with %q", c.args, r.code, r.err, c.code, c.text)
		}
	}
}
