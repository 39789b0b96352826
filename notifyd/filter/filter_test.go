package filter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func compile(t testing.TB, expression string) *Filter {
	t.Helper()
	f, err := Compile(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return f
}

func TestAFilterSeesHeadersKeyAndTopic(t *testing.T) {
	in := NewInput("orders", "42", map[string]string{"region": "eu", "empty": "", "ref": "region", "x-y": "z"})
	for expression, want := range map[string]bool{
		`headers.region == "eu"`:                               true,
		`headers["region"] == "us"`:                            false,
		`headers[headers.ref] == "eu"`:                         true,
		`headers["x-" + "y"] == "z"`:                           true,
		`key == "42" && topic == "orders"`:                     true,
		`key.startsWith("4") || topic in ["a", "b"]`:           true,
		`headers.exists(h, headers[h] == "z")`:                 true,
		`headers.all(h, h.size() > 3)`:                         false,
		`int(key) % 2 == 0`:                                    true,
		`topic.matches("^ord.*s$")`:                            true,
		`has(headers.region) && has(headers.empty)`:            true,
		`[headers].exists(m, m.region == "eu" && m.no == "")`:  true,
		`{"a": "b"}[key] == ""`:                                true,
		`headers.region == "eu" ? key == "42" : key == "none"`: true,
	} {
		for _, match := range bothWays(compile(t, expression)) {
			if got, err := match(in); err != nil || got != want {
				t.Errorf("%s is %v, %v; want %v", expression, got, err, want)
			}
		}
	}
}

// bothWays are the ways in which a filter is asked; of one that is not plain they are the same.
func bothWays(f *Filter) []func(*Input) (bool, error) {
	return []func(*Input) (bool, error){f.Match, f.interpret}
}

func TestAFilterThatOnlyComparesStringsIsPlain(t *testing.T) {
	for expression, want := range map[string]bool{
		`headers.kind == "trade" && headers["region"] != "eu" && key != "" && key.startsWith("a")`: true,
		`!(topic.endsWith("s") || headers[key].contains("x")) || true`:                             true,
		`key in ["a", topic] || key in headers || has(headers.a)`:                                  true,
		`headers.a == headers.b`:            true,
		`int(headers.a) > 3`:                false,
		`headers.a == "x" && size(key) > 1`: false,
		`headers.exists(h, h == "a")`:       false,
		`key.matches("a")`:                  false,
		`headers.a + "x" == key`:            false,
		`{"a": "b"}[key] == ""`:             false,
	} {
		if got := compile(t, expression).plain != nil; got != want {
			t.Errorf("%s is plain: %v, want %v", expression, got, want)
		}
	}
}

func TestAMissingHeaderReadsAsEmpty(t *testing.T) {
	for _, headers := range []map[string]string{nil, {}, {"other": "x"}} {
		in := NewInput("t", "", headers)
		for expression, want := range map[string]bool{
			`headers.region == "eu"`:                   false,
			`headers.region != "eu"`:                   true,
			`headers["region"] == ""`:                  true,
			`has(headers.region)`:                      false,
			`"region" in headers`:                      false,
			`headers.region.startsWith("e")`:           false,
			`headers[headers.a] == ""`:                 true,
			`!(headers.a == "1") && headers.b in [""]`: true,
			`key == ""`:                                true,
		} {
			for _, match := range bothWays(compile(t, expression)) {
				if got, err := match(in); err != nil || got != want {
					t.Errorf("%s of %v is %v, %v; want %v", expression, headers, got, err, want)
				}
			}
		}
	}
}

func TestABadExpressionIsRefusedWithPositionAndReasonInOneLine(t *testing.T) {
	for expression, want := range map[string]string{
		``:                            "column 1: ",
		`headers.region = "eu"`:       "column 16: ",
		`headers.region == `:          "column 19: ",
		`header.region == "eu"`:       "column 1: undeclared reference to 'header'",
		`key == 3`:                    "column 5: found no matching overload for '_==_' applied to '(string, int)'",
		`headers[1] == "x"`:           "column 8: found no matching overload",
		"key == 'a' &&\n  kez == 'b'": "line 2, column 3: undeclared reference to 'kez'",
		`key.matches("(")`:            "column 13: invalid matches argument",
		`headers.region`:              "it is of type string, want bool",
		`dyn(true)`:                   "it is of type dyn, want bool",
		`body == "x"`:                 "column 1: undeclared reference to 'body'",
		`headers.all(a, headers.all(b, headers.all(c, a+b == c)))`:                        "comprehension exceeds nesting limit",
		`headers.all(a, headers.all(b, a.contains(b) && headers[a].matches(headers[b])))`: "it may cost ",
		`"` + strings.Repeat("x", MaxBytes) + `" == key`:                                  "4105 bytes are too many, at most 4096",
		strings.Repeat("(", 2000):                                                         "column ",
	} {
		_, err := Compile(expression)
		var refused *Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || strings.ContainsRune(err.Error(), '\n') {
			t.Errorf("%.80s: %v, want %q in one line", expression, err, want)
		}
	}
}

func TestAnExpressionWithoutAnAnswerIsAnErrorAndEndsSoon(t *testing.T) {
	huge := map[string]string{"a": strings.Repeat("a", 16_000), "n": "x"}
	for _, expression := range []string{
		`int(headers.n) > 3`,
		strings.Repeat(`headers.a.matches("^(a|b|cd|ef|gh|ij|kl|mn|op|qr|st|uv|wx|yz|12|34|56|78|90|0987|654|321)*$") && `, 6) + "true",
	} {
		f := compile(t, expression)
		if got, err := f.Match(NewInput("t", "", huge)); err == nil {
			t.Errorf("%s is %v, want an error", expression, got)
		}
	}
	if f := compile(t, `headers.n != "x" && int(headers.n) > 3`); f != nil {
		if got, err := f.Match(NewInput("t", "", huge)); err != nil || got {
			t.Errorf("a guarded expression is %v, %v", got, err)
		}
	}
}

// A term is a comparison together with what it means in Go.
type term struct {
	text string
	mean func(key string, headers map[string]string) bool
}

func termGen(names, values *rapid.Generator[string]) *rapid.Generator[term] {
	return rapid.Custom(func(t *rapid.T) term {
		name, value := names.Draw(t, "name"), values.Draw(t, "value")
		quoted := strconv.Quote(value)
		access := "headers." + name
		if rapid.Bool().Draw(t, "index") {
			access = "headers[" + strconv.Quote(name) + "]"
		}
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 6:
			return term{access + ".endsWith(key)", func(k string, h map[string]string) bool { return strings.HasSuffix(h[name], k) }}
		case 7:
			return term{quoted + ".contains(" + access + ")", func(_ string, h map[string]string) bool { return strings.Contains(value, h[name]) }}
		case 8:
			return term{quoted + " in headers", func(_ string, h map[string]string) bool { _, ok := h[value]; return ok }}
		case 0:
			return term{access + " == " + quoted, func(_ string, h map[string]string) bool { return h[name] == value }}
		case 1:
			return term{access + " != " + quoted, func(_ string, h map[string]string) bool { return h[name] != value }}
		case 2:
			return term{access + ".startsWith(" + quoted + ")", func(_ string, h map[string]string) bool { return strings.HasPrefix(h[name], value) }}
		case 3:
			return term{"has(headers." + name + ")", func(_ string, h map[string]string) bool { _, ok := h[name]; return ok }}
		case 4:
			return term{"key in [" + quoted + `, "k"]`, func(k string, _ map[string]string) bool { return k == value || k == "k" }}
		}
		return term{"headers.exists(x, headers[x] == " + quoted + ")", func(_ string, h map[string]string) bool {
			return slices.Contains(slices.Collect(maps.Values(h)), value)
		}}
	})
}

func TestFiltersMeanWhatTheirTermsMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names, values := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"", "x", "xy", "ü"})
		terms := termGen(names, values)
		all := terms.Draw(t, "first")
		for range rapid.IntRange(0, 4).Draw(t, "more") {
			left, right := all, terms.Draw(t, "term")
			if rapid.Bool().Draw(t, "and") {
				all = term{"(" + left.text + " && " + right.text + ")", func(k string, h map[string]string) bool { return left.mean(k, h) && right.mean(k, h) }}
			} else {
				all = term{"!(" + left.text + " || " + right.text + ")", func(k string, h map[string]string) bool { return !(left.mean(k, h) || right.mean(k, h)) }}
			}
		}
		f, err := Compile(all.text)
		if err != nil {
			t.Fatalf("%s: %v", all.text, err)
		}
		for range 4 {
			key, headers := values.Draw(t, "key"), rapid.MapOf(names, values).Draw(t, "headers")
			want := all.mean(key, headers)
			for _, match := range bothWays(f) {
				if got, err := match(NewInput("t", key, headers)); err != nil || got != want {
					t.Fatalf("%s of key %q, headers %v is %v, %v; want %v", all.text, key, headers, got, err, want)
				}
			}
		}
	})
}

func FuzzNoExpressionPanicsOrIsRefusedInManyLines(f *testing.F) {
	for _, s := range []string{`headers.a == "b"`, `headers[key] in [topic]`, `headers.all(h, h != "")`, `key.matches("a+")`, `1/0 == 1`, `"\`, "a\nb", `[[[`, `headers.?a`} {
		f.Add(s, "k", "v")
	}
	f.Fuzz(func(t *testing.T, expression, name, value string) {
		flt, err := Compile(expression)
		if err != nil {
			if strings.ContainsRune(err.Error(), '\n') {
				t.Errorf("%q: %q", expression, err)
			}
			return
		}
		in := NewInput(value, name, map[string]string{name: value})
		first, firstErr := flt.Match(in)
		if again, err := flt.Match(in); again != first || (err == nil) != (firstErr == nil) {
			t.Errorf("%q: %v, %v and then %v, %v", expression, first, firstErr, again, err)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		compile(b, `headers.region == "eu"`)
	}
}

// BenchmarkMatch is one message against ten filters.
func BenchmarkMatch(b *testing.B) {
	for name, expression := range map[string]string{
		"plain": `headers.region == "eu" && headers.kind != "test" && key != "" && key.startsWith("%d")`,
		"other": `headers.region == "eu" && headers.kind != "test" && (key.startsWith("%d") || int(headers.size) > 100)`,
	} {
		b.Run(name, func(b *testing.B) {
			var filters []*Filter
			for i := range 10 {
				filters = append(filters, compile(b, fmt.Sprintf(expression, i)))
			}
			headers := map[string]string{"region": "eu", "kind": "order", "size": "50"}
			b.ReportAllocs()
			for b.Loop() {
				in := NewInput("orders", "42", headers)
				for _, f := range filters {
					if _, err := f.Match(in); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
