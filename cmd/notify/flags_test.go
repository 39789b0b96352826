package main

import (
	"strings"
	"testing"
	"time"
)

func TestSpansAreDurationsAndDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0,
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "-5s", "d", "-1d", "1.5d", "1d-2h", "2hd", "7 d", "100001d", "1d2d", "x"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// What is wrong with a command line is said in one line, in words that need no knowledge of Go,
// with what was given and what is wanted.
func TestMistakesInFlagsAndArgumentsAreNamed(t *testing.T) {
	for line, want := range map[string]string{
		"publish t x --delay -5s":                        "--delay -5s: want a duration of 0 or more, such as",
		"publish t x --count -1":                         "--count -1: want a whole number of 0 or more",
		"publish t x --count 1e3":                        "--count 1e3: want a whole number of 0 or more",
		"publish t x --rate -1":                          "--rate -1: want a number of 0 or more",
		"publish t x --rate NaN":                         "--rate NaN: want a number of 0 or more",
		"half ls --limit x":                              "--limit x: want a whole number of 0 or more",
		"mirror grow t --partitions x":                   "--partitions x: want a whole number",
		"mirror grow t --dry-run=maybe":                  "--dry-run maybe: want true or false",
		"sub set a b --ack-wait 5":                       "--ack-wait 5: want a duration",
		"topic set t check_after=5":                      "check_after=5: want a duration",
		"mirror tail":                                    "arguments []: want notify mirror tail TOPIC",
		"mirror tail a b":                                `arguments ["a" "b"]: want notify mirror tail TOPIC`,
		"mirror tail t --from 1h --to 2d":                "--to: 2d is before 1h",
		"mirror tail t --from 9 --to 8":                  "--to: 8 is before 9",
		"replay t --group g --from 2999-01-01T00:00:00Z": "--from: 2999-01-01T00:00:00Z is in the future",
		"mirror verify --since 2999-01-01T00:00:00Z":     "--since: is in the future",
		"message show x":                                 "x",
		"publish --nonsense":                             "unknown flag: --nonsense",
	} {
		r := notify(t, "", strings.Fields(line)...)
		if r.code != 2 || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("notify %s: code %d, %q; want %q on one line", line, r.code, r.err, want)
		}
		for _, word := range []string{"strconv", "parsing", "time: ", "arg(s)", "invalid"} {
			if strings.Contains(r.err, word) {
				t.Errorf("notify %s: %q", line, r.err)
			}
		}
	}
}
