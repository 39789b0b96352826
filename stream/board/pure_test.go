package board

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"notifymirror/mirror/record"
	"notifymirror/stream"
)

func sample(key, body string, headers map[string]string) *message {
	return newMessage(stream.Record{Message: record.Message{
		ID: uuid.New(), Topic: "t", Key: []byte(key), Body: []byte(body), Headers: record.FromMap(headers), BornAt: time.Unix(1000, 0),
	}})
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestFieldsFindTheirValue(t *testing.T) {
	m := sample("k1", `{"a": {"b": 12345678901234567890.10, "c": [{"d": "x"}, true]}, "n": null, "o": {}}`, map[string]string{"region": "eu", "a.b": "dotted"})
	for _, c := range []struct{ text, label, value string }{
		{"key", "Key", "k1"},
		{"key as Customer", "Customer", "k1"},
		{"headers.region", "Region", "eu"},
		{"headers.a.b as Dot", "Dot", "dotted"},
		{"headers.none", "None", ""},
		{"json.a.b", "B", "12345678901234567890.10"},
		{"json.a.c.0.d", "D", "x"},
		{"json.a.c.1", "1", "true"},
		{"json.a.c.2", "2", ""},
		{"json.a.c.-1", "-1", ""},
		{"json.a", "A", ""},
		{"json.n", "N", ""},
		{"json.a.b.c", "C", ""},
	} {
		f := must[Field](t)(ParseField(c.text))
		if f.Label != c.label || f.of(m) != c.value {
			t.Errorf("%s: label %q, value %q", c.text, f.Label, f.of(m))
		}
	}
	for _, text := range []string{"", "headers", "headers.", "json", "json.", "json.a..b", "body", "key as ", "region"} {
		if f, err := ParseField(text); err == nil {
			t.Errorf("%q is taken for %+v", text, f)
		}
	}
	for _, body := range []string{"", "no json", `{"a": 1} {"a": 2}`, `{"a":`, "\xff"} {
		if v := must[Field](t)(ParseField("json.a")).of(sample("", body, nil)); v != "" {
			t.Errorf("body %q has %q", body, v)
		}
	}
}

func TestValuesAreCutAndAlwaysText(t *testing.T) {
	for _, s := range []string{strings.Repeat("é", 500), strings.Repeat("\xff", 500), "a\xffb", strings.Repeat("x", 80), ""} {
		got := short(s)
		if n := len([]rune(got)); n > maxValue || !json.Valid([]byte(`"`+got+`"`)) {
			t.Errorf("%q becomes %q", s, got)
		}
	}
	if s := strings.Repeat("x", 80); short(s) != s {
		t.Error("a value that fits was changed")
	}
}

func TestFiltersSeeHeadersKeyTopicAndBody(t *testing.T) {
	m := sample("42", `{"n": 10, "big": 9007199254740993, "f": 1.5, "side": "buy", "list": [1, 2]}`, map[string]string{"region": "eu"})
	for text, want := range map[string]bool{
		"":                             true,
		"  ":                           true,
		`headers.region == "eu"`:       true,
		`key == "42" && topic == "t"`:  true,
		`json.n > 9`:                   true,
		`json.big == 9007199254740993`: true,
		`json.f < 1.0`:                 false,
		`json.side == "sell"`:          false,
		`2 in json.list`:               true,
		`has(headers.none)`:            false,
		`has(json.none)`:               false,
	} {
		got, err := must[Filter](t)(ParseFilter(text)).match(m)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{`headers.none == ""`, `json.none == 1`, `json.side > 3`, `json.n`} {
		if got, err := must[Filter](t)(ParseFilter(text)).match(m); err == nil || got {
			t.Errorf("%s has the answer %v", text, got)
		}
	}
	for text, want := range map[string]string{
		"headers.region ==": "line 1, column",
		"nothing == 1":      "undeclared reference to 'nothing'",
		"key":               "want bool",
		"key == 1":          "no matching overload",
		"true &&\n nothing": "line 2, column 2",
	} {
		if _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAmountsAreExactOrRefused(t *testing.T) {
	for _, c := range []struct {
		text     string
		decimals int
		want     int64
	}{
		{"0", 2, 0}, {"12", 2, 1200}, {"12.3", 2, 1230}, {"12.34", 2, 1234}, {"12.3400", 2, 1234}, {"-0.01", 2, -1}, {"007", 0, 7},
		{"92233720368547758.07", 2, math.MaxInt64}, {"5.000", 0, 5}, {"0.123456789", 9, 123456789},
	} {
		if got, err := minorUnits(c.text, c.decimals); err != nil || got != c.want {
			t.Errorf("%s with %d decimals: %d, %v", c.text, c.decimals, got, err)
		}
	}
	for _, text := range []string{"", "-", ".", "1.", ".5", "1.234", "1e3", "+1", "--1", "1,000", "92233720368547758.08", "x", " 1", "١"} {
		if got, err := minorUnits(text, 2); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(math.MinInt64+1).Draw(t, "minor units")
		decimals := rapid.IntRange(0, maxDecimals).Draw(t, "decimals")
		text := new(big.Rat).SetFrac(big.NewInt(n), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil)).FloatString(decimals)
		if got, err := minorUnits(text, decimals); err != nil || got != n {
			t.Fatalf("%s with %d decimals: %d, %v", text, decimals, got, err)
		}
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		sum, ok := plus(a, b)
		exact := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
		if ok != exact.IsInt64() || ok && sum != exact.Int64() {
			t.Fatalf("%d + %d: %d, %v", a, b, sum, ok)
		}
	})
}

func TestPeriodsBeginByTheClockOfTheZone(t *testing.T) {
	shanghai := must[*time.Location](t)(time.LoadLocation("Asia/Shanghai"))
	kathmandu := must[*time.Location](t)(time.LoadLocation("Asia/Kathmandu"))
	berlin := must[*time.Location](t)(time.LoadLocation("Europe/Berlin"))
	at := func(zone *time.Location, text string) time.Time {
		return must[time.Time](t)(time.ParseInLocation(time.DateTime, text, zone))
	}
	for _, c := range []struct {
		since     string
		now, want time.Time
	}{
		{"oldest", at(time.UTC, "2026-11-11 10:00:00"), time.Time{}},
		{"day", at(shanghai, "2026-11-11 00:00:00"), at(shanghai, "2026-11-11 00:00:00")},
		{"day", at(shanghai, "2026-11-11 23:59:59"), at(shanghai, "2026-11-11 00:00:00")},
		{"day", at(berlin, "2026-10-25 23:00:00"), at(berlin, "2026-10-25 00:00:00")}, // 25 hours long
		{"hour", at(kathmandu, "2026-11-11 10:17:05").Add(3 * time.Millisecond), at(kathmandu, "2026-11-11 10:00:00")},
		{"2026-11-11T00:00:00+08:00", at(time.UTC, "2026-12-01 00:00:00"), at(shanghai, "2026-11-11 00:00:00")},
	} {
		s := must[Since](t)(ParseSince(c.since))
		if got := s.start(c.now); !got.Equal(c.want) || s.String() != c.since {
			t.Errorf("%s at %s: %s, text %s", c.since, c.now, got, s)
		}
	}
	if _, err := ParseSince("yesterday"); err == nil {
		t.Error("yesterday is taken")
	}
}

// Whatever comes, the rows and the rest add up to the total, memory is bounded, and nothing
// is approximate before it must be.
func TestRankingsAddUpAndAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		money := rapid.Bool().Draw(t, "money")
		values := rapid.SliceOf(rapid.SampledFrom(strings.Split("abcdefghijklmnopqrstuvwxyz", ""))).Draw(t, "values")
		r := newRanking(limit, money)
		var total cell
		exact := map[string]int64{}
		for i, v := range values {
			amount := int64(i*7%13) - 3
			r.add(v, amount)
			total = cell{total.count + 1, total.amount + amount}
			exact[v]++
			if len(r.cells) > 2*limit {
				t.Fatalf("%d values in memory, limit %d", len(r.cells), limit)
			}
		}
		s := r.largest("x", 3, total)
		count, amount := s.Other.Count, s.Other.Amount
		for _, e := range s.Entries {
			count, amount = count+e.Count, amount+e.Amount
			if e.Count > exact[e.Value] || !s.Bounded && e.Count != exact[e.Value] {
				t.Fatalf("%s counted %d times, was there %d times", e.Value, e.Count, exact[e.Value])
			}
		}
		if count != total.count || amount != total.amount {
			t.Fatalf("rows add up to %d, %d; total %+v", count, amount, total)
		}
		if s.Bounded != (len(exact) > 2*limit) {
			t.Fatalf("%d values, limit %d, bounded %v", len(exact), limit, s.Bounded)
		}
	})
}

func TestTenThousandValuesLeaveTheLargeOnesAndOther(t *testing.T) {
	r := newRanking(1000, false)
	var total cell
	for round := range 3 {
		for i := range 10_000 {
			r.add(fmt.Sprintf("v%d", i), 0)
			if i%20 == 0 && round > 0 { // comes late, and is large in the end
				r.add("late", 0)
				total.count++
			}
			total.count++
		}
	}
	s := r.largest("x", 8, total)
	if !s.Bounded || s.Entries[0].Value != "late" || s.Entries[0].Count != 1000 || s.Other.Count < 29_000 || len(r.cells) > 2000 {
		t.Errorf("%+v with %d in memory", s, len(r.cells))
	}
}

func TestCurvesCountBySecondInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := time.Duration(rapid.IntRange(60, 3600).Draw(t, "span")) * time.Second
		c := newCurve(span)
		now := time.Unix(1_700_000_000+int64(rapid.IntRange(0, 10_000).Draw(t, "now")), 500)
		naive := map[int64]int64{}
		for _, back := range rapid.SliceOf(rapid.IntRange(0, int(span/time.Second))).Draw(t, "seconds back") {
			at := now.Add(-time.Duration(back) * time.Second)
			c.add(at)
			naive[at.Unix()-at.Unix()%c.step]++
		}
		from, counts := c.points(now)
		if len(counts) > maxPoints {
			t.Fatalf("%d points", len(counts))
		}
		for i, n := range counts {
			if at := from + int64(i)*c.step; n != naive[at] {
				t.Fatalf("at %d: %d, want %d", at, n, naive[at])
			}
		}
	})
	c := newCurve(time.Minute)
	for i := range 10 {
		for range 4 {
			c.add(time.Unix(1000+int64(i), 0))
		}
	}
	c.add(time.Unix(1010, 0)) // the second under way does not count yet
	if r := c.rate(time.Unix(1010, 0)); r != 4 {
		t.Errorf("rate %v", r)
	}
	c.add(time.Unix(2000, 0))
	c.add(time.Unix(1000, 0)) // long past
	c.add(time.Unix(-1001, 0))
	if from, counts := c.points(time.Unix(2001, 0)); from != 1941 || counts[59] != 1 || counts[0] != 0 {
		t.Errorf("from %d: %v", from, counts)
	}
}

// Records of several partitions come in any interleaving, also across the end of a period;
// the totals are those of the records in the period that the latest of them begins.
func TestTotalsDoNotDependOnHowPartitionsInterleave(t *testing.T) {
	b := (Board{Topic: "t", Amount: Field{kind: jsonField, path: []string{"a"}}, Since: Since{every: time.Hour}, Top: []Field{{kind: keyField}}}).withDefaults("b")
	begin := time.Date(2026, 11, 11, 9, 59, 30, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		tl := newTally(&b, begin)
		offsets := map[int32]int64{}
		var all []reading
		for range rapid.IntRange(0, 60).Draw(t, "records") {
			p := int32(rapid.IntRange(0, 3).Draw(t, "partition"))
			r := reading{partition: p, offset: offsets[p], at: begin.Add(time.Duration(rapid.IntRange(0, 59).Draw(t, "second")) * time.Second),
				counted: rapid.IntRange(0, 4).Draw(t, "counted") > 0, amount: int64(rapid.IntRange(-5, 100).Draw(t, "amount")), top: []string{"x"}}
			r.came, r.noAmount = r.at, r.counted && r.amount == 3
			offsets[p] += 1 + int64(rapid.IntRange(0, 2).Draw(t, "gap"))
			all = append(all, r)
			tl.add(r)
		}
		latest := begin
		for _, r := range all {
			latest = maxTime(latest, r.at)
		}
		from := b.Since.start(latest)
		var want cell
		var noAmount int64
		for _, r := range all {
			if !r.counted || r.at.Before(from) {
				continue
			}
			want.count++
			if r.noAmount {
				noAmount++
			} else {
				want.amount += r.amount
			}
		}
		if tl.total != want || tl.noAmount != noAmount || !tl.from.Equal(from) {
			t.Fatalf("%+v, %d without an amount since %s; want %+v, %d since %s", tl.total, tl.noAmount, tl.from, want, noAmount, from)
		}
		var f frame
		tl.fill(&f, latest)
		if f.Count != want.count || f.Amount != fmt.Sprint(want.amount) {
			t.Fatalf("frame %+v", f)
		}
		if len(tl.recent) > 2*shownRecent || len(f.Recent) > shownRecent {
			t.Fatalf("%d rows in memory, %d shown", len(tl.recent), len(f.Recent))
		}
	})
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func TestAPeriodEndsWithoutAMessage(t *testing.T) {
	b := (Board{Topic: "t", Since: Since{every: time.Hour}}).withDefaults("b")
	now := time.Date(2026, 11, 11, 9, 59, 59, 0, time.UTC)
	tl := newTally(&b, now)
	tl.add(reading{at: now, counted: true})
	var f frame
	if tl.fill(&f, now); f.Count != 1 {
		t.Errorf("%d before the hour", f.Count)
	}
	f = frame{}
	if tl.fill(&f, now.Add(time.Second)); f.Count != 0 || f.From != now.Add(time.Second).UnixMilli() {
		t.Errorf("%d after the hour, from %d", f.Count, f.From)
	}
}

func TestWhatIsKnownToBeWhole(t *testing.T) {
	at := func(s int64) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return time.Unix(s, 0)
	}
	for _, c := range []struct {
		what                      string
		own, mirror, newest, want int64
	}{
		{"nothing is known", 0, 0, 0, 0},
		{"records come, no canald is asked", 100, 0, 99, 99},
		{"quiet, no canald is asked: nobody can tell", 100, 0, 50, 50},
		{"quiet, and the mirror copies", 100, 99, 50, 99},
		{"quiet, and the mirror stands", 100, 60, 50, 60},
		{"records come while canald does not answer", 100, 60, 99, 99},
		{"Kafka is away", 70, 99, 69, 70},
		{"one partition is behind", 70, 99, 99, 70},
		{"nothing read yet", 0, 99, 0, 0},
	} {
		var stores []mirrorState
		if c.mirror > 0 {
			stores = []mirrorState{{"main", "copying", 1000 * c.mirror, "id"}}
		}
		if got := earlier(at(c.own), mirrored(stores, map[string]time.Time{"id": at(c.newest)})); !got.Equal(at(c.want)) {
			t.Errorf("%s: %s", c.what, got)
		}
	}
}

// One store's records say nothing of another's, whose mirror may stand.
func TestABoardIsAsOldAsTheMirrorOfItsOldestStore(t *testing.T) {
	newest := map[string]time.Time{"id-a": time.Unix(99, 0), "id-b": time.Unix(50, 0)}
	for _, c := range []struct {
		what   string
		stores []mirrorState
		want   int64
	}{
		{"no canald is asked", nil, 99},
		{"both copy", []mirrorState{{"a", "copying", 98_000, "id-a"}, {"b", "copying", 97_000, "id-b"}}, 97},
		{"one stands", []mirrorState{{"a", "copying", 98_000, "id-a"}, {"b", "halted", 60_000, "id-b"}}, 60},
		{"nothing was heard of one but a record", []mirrorState{{"a", "copying", 98_000, "id-a"}, {"b", "halted", 0, "id-b"}}, 50},
	} {
		if got := mirrored(c.stores, newest); !got.Equal(time.Unix(c.want, 0)) {
			t.Errorf("%s: %s", c.what, got)
		}
	}
	if got := mirrored([]mirrorState{{"a", "copying", 98_000, "id-a"}, {"c", "halted", 0, "id-c"}}, newest); !got.IsZero() {
		t.Errorf("nothing was ever heard of one: %s", got)
	}
}

// A store whose clock is ahead of ours must not make a board look alive that stands.
func TestARecordFromTheFutureIsASignOfLifeOfThePresentOnly(t *testing.T) {
	b := (Board{Topic: "t"}).withDefaults("b")
	now := time.Unix(1000, 0)
	tl := newTally(&b, now)
	tl.add(reading{store: "s", at: now.Add(time.Hour), came: now})
	tl.add(reading{store: "s", at: now.Add(-time.Hour), came: now.Add(time.Second)})
	if got := tl.newest["s"]; !got.Equal(now) {
		t.Errorf("known up to %s, it is %s", got, now)
	}
}

func TestMirrorStatesAreJoined(t *testing.T) {
	first := joinMirrors(nil, []mirrorState{{"a", "copying", 100, ""}, {"a", "standby", 0, ""}, {"b", "waiting", 0, ""}}, false)
	if want := []mirrorState{{"a", "copying", 100, ""}, {"b", "waiting", 0, ""}}; !slices.Equal(first, want) {
		t.Errorf("%v", first)
	}
	swapped := joinMirrors(nil, []mirrorState{{"a", "standby", 0, ""}, {"a", "copying", 100, ""}}, false)
	if want := []mirrorState{{"a", "copying", 100, ""}}; !slices.Equal(swapped, want) {
		t.Errorf("%v", swapped)
	}
	older := joinMirrors(first, []mirrorState{{"a", "starting", 0, ""}}, false)
	if want := []mirrorState{{"a", "starting", 100, ""}, {"b", "no answer", 0, ""}}; !slices.Equal(older, want) {
		t.Errorf("%v", older)
	}
	silent := joinMirrors(first, nil, false)
	if silent[0] != (mirrorState{"a", "no answer", 100, ""}) {
		t.Errorf("%v", silent)
	}
	if gone := joinMirrors(first, []mirrorState{{"b", "copying", 7, ""}}, true); !slices.Equal(gone, []mirrorState{{"b", "copying", 7, ""}}) {
		t.Errorf("%v", gone)
	}
	groups := joinGroups([]groupState{{Group: "g", Waiting: 1, Down: true}, {Group: "f"}, {Group: "g", Waiting: 2, InFlight: 3, More: true}})
	if old := groupsAfter(groups, nil, true); len(old) != 2 || !old[1].Old || old[1].Waiting != 3 || groups[1].Old {
		t.Errorf("%+v", old)
	}
	if again := groupsAfter(groups, groups[:1], false); len(again) != 1 || again[0].Old {
		t.Errorf("%+v", again)
	}
	if len(groups) != 2 || groups[1].Waiting != 3 || groups[1].InFlight != 3 || !groups[1].More || !groups[1].Down {
		t.Errorf("%+v", groups)
	}
}

func TestConfigurationsThatMeanNothingAreRefused(t *testing.T) {
	good := func() Config {
		return Config{Kafka: KafkaConfig{Brokers: []string{"k:9092"}}, Boards: map[string]Board{"a": {Topic: "t"}}}
	}
	c := good()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config, *Board){
		"kafka.brokers: none":       func(c *Config, _ *Board) { c.Kafka.Brokers = nil },
		`kafka.brokers: "k"`:        func(c *Config, _ *Board) { c.Kafka.Brokers = []string{"k"} },
		`canald: "http://x"`:        func(c *Config, _ *Board) { c.Canald = []string{"http://x"} },
		`notifyd: "x:"`:             func(c *Config, _ *Board) { c.Notifyd = []string{"x:"} },
		`zone: "Mars"`:              func(c *Config, _ *Board) { c.Zone = "Mars" },
		"boards: none":              func(c *Config, _ *Board) { c.Boards = nil },
		"boards.A b: the name":      func(c *Config, b *Board) { c.Boards["A b"] = *b },
		"boards.a.topic: is req":    func(_ *Config, b *Board) { b.Topic = "" },
		"boards.a.decimals: must":   func(_ *Config, b *Board) { b.Amount, b.Decimals = Field{kind: keyField}, 10 },
		"boards.a.amount: is miss":  func(_ *Config, b *Board) { b.Unit = "EUR" },
		"boards.a.curve: must":      func(_ *Config, b *Board) { b.Curve = time.Second },
		"boards.a.bars: at most 4":  func(_ *Config, b *Board) { b.Bars = make([]Field, 5) },
		"boards.a.top: at most 4":   func(_ *Config, b *Board) { b.Top = make([]Field, 5) },
		"boards.a.recent: at most":  func(_ *Config, b *Board) { b.Recent = make([]Field, 7) },
		"boards.a.values: must be ": func(_ *Config, b *Board) { b.Values = 9 },
	} {
		c := good()
		b := c.Boards["a"]
		change(&c, &b)
		if c.Boards != nil {
			c.Boards["a"] = b
		}
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Sums stay exact where amounts of both signs are large: no part of them leaves the int64 though
// the whole would come back.
func TestNoSumOverflowsOnItsWay(t *testing.T) {
	b := (Board{Topic: "t", Amount: Field{kind: jsonField, path: []string{"a"}}, Top: []Field{{kind: keyField}}}).withDefaults("b")
	rapid.Check(t, func(t *rapid.T) {
		tl := newTally(&b, time.Unix(0, 0))
		sums, refused := map[string]*big.Int{"a": new(big.Int), "b": new(big.Int)}, int64(0)
		for range rapid.IntRange(1, 12).Draw(t, "records") {
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
			amount := rapid.Int64Range(-math.MaxInt64, math.MaxInt64).Draw(t, "amount")
			before := tl.noAmount
			if tl.add(reading{counted: true, amount: amount, top: []string{key}}); tl.noAmount == before {
				sums[key].Add(sums[key], big.NewInt(amount))
			} else {
				refused++
			}
		}
		shown := tl.top[0].largest("", 1, tl.total)
		if all := tl.top[0].ordered(); !slices.Equal(shown.Entries, all[:1]) || !slices.Equal(tl.top[0].first(3), all) {
			t.Fatalf("%v is first of %v", shown.Entries, all)
		}
		for _, e := range append(tl.top[0].ordered(), shown.Other) {
			if want := sums[e.Value]; want != nil && want.Cmp(big.NewInt(e.Amount)) != 0 {
				t.Fatalf("%s is %d, want %s", e.Value, e.Amount, want)
			}
		}
		total := new(big.Int).Add(sums["a"], sums["b"])
		rest := new(big.Int).Sub(total, big.NewInt(shown.Entries[0].Amount))
		if total.Cmp(big.NewInt(tl.total.amount)) != 0 || rest.Cmp(big.NewInt(shown.Other.Amount)) != 0 || refused != tl.noAmount {
			t.Fatalf("total %d, other %d, want %s and %s", tl.total.amount, shown.Other.Amount, total, rest)
		}
	})
}

// One record from a clock that is wrong by days does not end the period of all others.
func TestAWrongClockDoesNotBeginAPeriod(t *testing.T) {
	b := (Board{Topic: "t", Since: Since{every: day}}).withDefaults("b")
	now := time.Date(2026, 11, 11, 23, 59, 30, 0, time.UTC)
	tl := newTally(&b, now)
	tl.add(reading{at: now, came: now, counted: true})
	tl.add(reading{at: now.Add(48 * time.Hour), came: now, counted: true})
	var f frame
	if tl.fill(&f, now); f.Count != 2 || f.From != now.Truncate(day).UnixMilli() {
		t.Errorf("%d messages since %s", f.Count, time.UnixMilli(f.From).UTC())
	}
	tl.add(reading{at: now.Add(40 * time.Second), came: now, counted: true}) // the store is a little ahead
	f = frame{}
	if tl.fill(&f, now); f.Count != 1 || f.From != now.Add(30*time.Second).UnixMilli() {
		t.Errorf("%d messages since %s", f.Count, time.UnixMilli(f.From).UTC())
	}
}

// A page that was made for other panels loads itself anew; one whose server came back does not.
func TestAPageKnowsWhetherItsPanelsAreStillThose(t *testing.T) {
	page := func(b Board) string {
		s := must[*Server](t)(New(Config{Kafka: KafkaConfig{Brokers: []string{"k:9092"}}, Boards: map[string]Board{"b": b}}, Deps{}))
		return s.boards["b"].page
	}
	key, other := must[Field](t)(ParseField("key")), must[Field](t)(ParseField("key as Other"))
	first := page(Board{Topic: "t", Bars: []Field{key}})
	if again := page(Board{Topic: "t", Title: "T", Bars: []Field{key}}); again != first {
		t.Errorf("%s and %s for the same panels", first, again)
	}
	for _, b := range []Board{{Topic: "t"}, {Topic: "t", Top: []Field{key}}, {Topic: "t", Bars: []Field{other}}, {Topic: "t", Bars: []Field{key}, Recent: []Field{key}},
		{Topic: "t", Bars: []Field{key}, Amount: key}} {
		if page(b) == first {
			t.Errorf("the same page for %+v", b)
		}
	}
}
