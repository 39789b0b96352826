package canal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"pgregory.net/rapid"
)

func flavors(t *testing.T, test func(t *testing.T, f Flavor)) {
	for _, f := range []Flavor{MySQL, MariaDB} {
		t.Run(string(f), func(t *testing.T) { test(t, f) })
	}
}

// begin is the head of a transaction that goes on.
func begin(f Flavor, seq uint64) []event {
	all := transaction(f, seq)
	return all[:len(all)-1]
}

func mapped(numbers ...int) []event {
	return []event{tableMapEvent(7, "shop", "message_00"), insertEvent(7, numbers...)}
}

func join(parts ...[]event) []event { return slices.Concat(parts...) }

// memory is small enough for some transactions of the random tests to go to a file.
const memory = 100

// A story is a script, and the transactions that come of it: last digit of the GTID, and
// the numbers of its rows.
func story(t *testing.T, f Flavor, events []event, want ...string) {
	t.Helper()
	got, err := scripted(f, memory).play(t, events...)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("transactions %q, error %v; want %q", got, err, want)
	}
}

func one(e ...event) []event { return e }

func TestRowsComeOutAtTheEndMarkerAndNotBefore(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		all := transaction(f, 1, 10, 11)
		story(t, f, all[:len(all)-1])
		story(t, f, all, "1 10 11")
		story(t, f, join(begin(f, 1), mapped(10), one(queryEvent("", "COMMIT"))), "1 10")
		story(t, f, join(begin(f, 1), mapped(10), one(xaPrepareEvent(1))), "1 10")
	})
}

func TestEveryGTIDComesOutWhateverItsTransactionDid(t *testing.T) {
	update := rowsEventOf(replication.UPDATE_ROWS_EVENTv1, 7, 3, []byte{3})
	remove := rowsEventOf(replication.DELETE_ROWS_EVENTv1, 7, 3, []byte{0})
	flavors(t, func(t *testing.T, f Flavor) {
		story(t, f, transaction(f, 1), "1")
		story(t, f, join(begin(f, 1), one(tableMapEvent(8, "other", "message_00"), insertEvent(8, 1), xidEvent())), "1")
		story(t, f, join(begin(f, 1), one(tableMapEvent(8, "shop", "pending_00"), insertEvent(8, 1), xidEvent())), "1")
		story(t, f, join(begin(f, 1), one(tableMapEvent(7, "shop", "message_00"), update, xidEvent())), "1")
		story(t, f, join(begin(f, 1), one(tableMapEvent(7, "shop", "message_00"), remove, xidEvent())), "1")
		story(t, f, join(begin(f, 1), one(queryEvent("other", "INSERT INTO t VALUES (1)"), xidEvent())), "1")
		story(t, f, join(begin(f, 1), one(queryEvent("shop", "CREATE TABLE a AS SELECT 1"), xidEvent())), "1")
		story(t, f, join(begin(f, 1), one(xaPrepareEvent(0))), "1")
	})
	story(t, MySQL, one(gtidEvent(MySQL, 1), queryEvent("shop", "CREATE TABLE a (b INT)"), gtidEvent(MySQL, 2), queryEvent("", "XA ROLLBACK X'01'")), "1", "2")
	story(t, MariaDB, one(standalone(gtidEvent(MariaDB, 1)), event{typ: replication.INTVAR_EVENT}, queryEvent("shop", "ALTER TABLE a ADD b INT")), "1")
	story(t, MariaDB, one(standalone(gtidEvent(MariaDB, 1)), queryEvent("", "XA COMMIT X'01'")), "1")
}

func TestARolledBackTransactionHasNoRows(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		story(t, f, join(begin(f, 1), mapped(10), one(queryEvent("", "ROLLBACK"))), "1")
	})
}

func TestRowsBehindASavepointGoWithARollbackToIt(t *testing.T) {
	to := func(s string) []event { return one(queryEvent("", s)) }
	flavors(t, func(t *testing.T, f Flavor) {
		story(t, f, join(begin(f, 1), mapped(1), to("SAVEPOINT `a b`"), mapped(2, 3), to("SAVEPOINT c"), mapped(4),
			to("ROLLBACK TO `A B`"), mapped(5), one(xidEvent())), "1 1 5")
		story(t, f, join(begin(f, 1), to("SAVEPOINT a"), mapped(2), to("ROLLBACK TO SAVEPOINT a"), one(xidEvent())), "1")
		story(t, f, join(begin(f, 1), mapped(1), to("SAVEPOINT a"), mapped(2), to("SAVEPOINT a"), mapped(3),
			to("ROLLBACK TO a"), one(xidEvent())), "1 1 2")
	})
}

func TestAGTIDBeforeTheEndMarkerVoidsWhatWasCollected(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		cut := begin(f, 1)
		story(t, f, join(cut, mapped(10), transaction(f, 1, 10, 11)), "1 10 11")
		story(t, f, join(cut, mapped(10), one(event{typ: replication.FORMAT_DESCRIPTION_EVENT}), transaction(f, 1, 10)), "1 10")
		_, err := scripted(f, memory).play(t, join(cut, mapped(10), one(event{typ: replication.FORMAT_DESCRIPTION_EVENT}, xidEvent()))...)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("an end behind a crash: %v", err)
		}
	})
}

func TestATableIDIsForgottenAtTheEndOfItsStatement(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		_, err := scripted(f, memory).play(t, join(begin(f, 1), mapped(1), one(insertEvent(7, 2)))...)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v", err)
		}
		story(t, f, join(transaction(f, 1, 1), begin(f, 2), one(tableMapEvent(7, "shop", "other"), insertEvent(7, 2), xidEvent())), "1 1", "2")
	})
}

func TestACompressedTransactionIsUnpacked(t *testing.T) {
	inner := transaction(MySQL, 1, 10, 11)[1:]
	story(t, MySQL, one(gtidEvent(MySQL, 1), payloadEvent(t, inner...), gtidEvent(MySQL, 2), queryEvent("", "DROP TABLE a")), "1 10 11", "2")
	_, err := scripted(MySQL, memory).play(t, gtidEvent(MySQL, 1), payloadEvent(t, inner[:len(inner)-1]...))
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("without an end inside: %v", err)
	}
	_, err = scripted(MySQL, memory).play(t, gtidEvent(MySQL, 1), payloadEvent(t, append(inner, event{typ: 77})...))
	if err == nil {
		t.Error("events behind the end inside: no error")
	}
}

func TestWhatCannotBeReadStopsTheStream(t *testing.T) {
	insertText := "INSERT INTO message_00 VALUES (1)"
	cases := []struct {
		name   string
		events []event
		want   error
		text   string
	}{
		{"text dml by default schema", one(queryEvent("shop", insertText)), ErrTextDML, "INSERT INTO message_00"},
		{"text dml by name", one(queryEvent("other", "/* x */ replace into `SHOP`.message_00 select 1")), ErrTextDML, "binlog_format=ROW"},
		{"text delete", one(queryEvent("shop", "DELETE FROM message_00")), ErrTextDML, ""},
		{"load data", one(event{typ: replication.EXECUTE_LOAD_QUERY_EVENT, body: append(make([]byte, 27), "LOAD DATA INFILE 'f' INTO TABLE shop.message_00"...)}), ErrTextDML, ""},
		{"absent column", one(tableMapEvent(7, "shop", "message_00"), rowsEventOf(replication.WRITE_ROWS_EVENTv1, 7, 1, []byte{0})), ErrPartialRow, "column body of table shop.message_00"},
		{"xa", join(mapped(1), one(xaPrepareEvent(0))), ErrXA, "XA"},
		{"partial update", one(tableMapEvent(7, "shop", "message_00"), rowsEventOf(replication.PARTIAL_UPDATE_ROWS_EVENT, 7, 3, []byte{3})), ErrUnknownEvent, "partial update of table shop.message_00"},
		{"incident", one(event{typ: replication.INCIDENT_EVENT}), ErrIncident, ""},
		{"unknown kind", one(event{typ: 99}), ErrUnknownEvent, "event kind 99"},
		{"unknown savepoint", one(queryEvent("", "ROLLBACK TO a")), ErrUnknownEvent, "savepoint"},
		{"anonymous", one(event{typ: replication.ANONYMOUS_GTID_EVENT}), ErrSettings, "gtid_mode"},
		{"table id without a map", one(insertEvent(9, 1)), ErrCorrupt, "table id 9"},
		{"short event", one(event{typ: replication.TABLE_MAP_EVENT, body: []byte{1}}), ErrCorrupt, "too early"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			flavors(t, func(t *testing.T, f Flavor) {
				a := scripted(f, memory)
				_, err := a.play(t, join(begin(f, 5), c.events)...)
				var stop *StopError
				if !errors.Is(err, c.want) || !errors.As(err, &stop) {
					t.Fatalf("error %v, want %v", err, c.want)
				}
				if stop.Mend == "" || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("operator's text: %s", err)
				}
				if c.name != "anonymous" && !strings.Contains(stop.Where, "GTID "+gtidText(f, 5)) {
					t.Errorf("where: %q", stop.Where)
				}
				if a.open != nil {
					t.Error("the transaction is still open")
				}
			})
		})
	}
}

func gtidText(f Flavor, seq int) string {
	if f == MariaDB {
		return fmt.Sprintf("0-1-%d", seq)
	}
	return fmt.Sprintf("%s:%d", scriptSID, seq)
}

func TestNamesAreComparedAsTheServerDoes(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		events := join(begin(f, 1), one(tableMapEvent(7, "SHOP", "Message_00"), insertEvent(7, 1), xidEvent()))
		story(t, f, events, "1")
		p := scripted(f, memory)
		p.watch.fold = true
		for _, e := range events {
			done, err := p.push(e)
			if err != nil {
				t.Fatal(err)
			}
			if done != nil {
				if done.kind != Rows {
					t.Error("a server that folds names: no rows")
				}
				done.rows.release()
			}
		}
	})
}

func TestAPartialUpdateOrAnIgnorableEventOfOthersIsSkipped(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		story(t, f, join(begin(f, 1), one(tableMapEvent(8, "other", "t"), rowsEventOf(replication.PARTIAL_UPDATE_ROWS_EVENT, 8, 3, []byte{3}),
			event{typ: 99, flags: replication.LOG_EVENT_IGNORABLE_F}, xidEvent())), "1")
	})
}

func TestEventsOutsideOfATransactionAreAFault(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		for _, e := range []event{xidEvent(), insertEvent(7, 1), tableMapEvent(7, "shop", "message_00"), queryEvent("", "COMMIT"), xaPrepareEvent(0)} {
			if _, err := scripted(f, memory).play(t, e); !errors.Is(err, ErrCorrupt) {
				t.Errorf("event %s: %v", e.typ, err)
			}
		}
	})
}

// A random log, read over connections that break anywhere, each going on behind the last
// whole transaction: the outcome is that of one reading without a break.
func TestAnyCutAndReconnectYieldsEachTransactionOnceAndWhole(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		rapid.Check(t, func(rt *rapid.T) {
			log, want := randomLog(t, rt, f)
			var got []string
			for from := 0; from < len(log); {
				cut := rapid.IntRange(0, len(slices.Concat(log[from:]...))).Draw(rt, "cut")
				out, err := scripted(f, memory).play(t, slices.Concat(log[from:]...)[:cut]...)
				if err != nil {
					rt.Fatal(err)
				}
				got = append(got, out...)
				from += len(out)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("got %q, want %q", got, want)
			}
		})
	})
}

// The same with a server, or a reconnect of the client library, that goes on inside a
// transaction: it is sent again from its GTID event without an end before.
func TestATransactionSentAgainFromItsBeginningIsNotDoubled(t *testing.T) {
	flavors(t, func(t *testing.T, f Flavor) {
		rapid.Check(t, func(rt *rapid.T) {
			log, want := randomLog(t, rt, f)
			var stream []event
			for _, txn := range log {
				stream = append(stream, txn[:rapid.IntRange(0, len(txn)-1).Draw(rt, "cut")]...)
				stream = append(stream, txn...)
			}
			if got, err := scripted(f, memory).play(t, stream...); err != nil || !slices.Equal(got, want) {
				rt.Fatalf("got %q, want %q, error %v", got, want, err)
			}
		})
	})
}

// randomLog is a log of groups, and what must come of it.
func randomLog(t *testing.T, rt *rapid.T, f Flavor) (log [][]event, want []string) {
	row := 0
	for seq := range rapid.IntRange(1, 8).Draw(rt, "transactions") {
		w := fmt.Sprint(seq + 1)
		g := begin(f, uint64(seq+1))
		var kept []string
		mark := -1
		for range rapid.IntRange(0, 6).Draw(rt, "items") {
			switch rapid.SampledFrom([]string{"row", "row", "foreign", "savepoint", "back"}).Draw(rt, "item") {
			case "row":
				row++
				kept = append(kept, fmt.Sprint(row))
				g = append(g, mapped(row)...)
			case "foreign":
				g = append(g, tableMapEvent(8, "other", "t"), insertEvent(8, 1))
			case "savepoint":
				mark = len(kept)
				g = append(g, queryEvent("", "SAVEPOINT s"))
			case "back":
				if mark >= 0 {
					kept = kept[:mark]
					g = append(g, queryEvent("", "ROLLBACK TO s"))
				}
			}
		}
		switch rapid.SampledFrom([]string{"xid", "commit", "rollback", "payload"}).Draw(rt, "end") {
		case "rollback":
			kept = nil
			g = append(g, queryEvent("", "ROLLBACK"))
		case "commit":
			g = append(g, queryEvent("", "COMMIT"))
		case "payload":
			g = append(g, xidEvent())
			if f == MySQL {
				g = []event{g[0], payloadEvent(t, g[1:]...)}
			}
		default:
			g = append(g, xidEvent())
		}
		for _, k := range kept {
			w += " " + k
		}
		log, want = append(log, g), append(want, w)
	}
	return log, want
}

func FuzzAssemblerNeitherPanicsNorLoops(f *testing.F) {
	for _, e := range join(transaction(MySQL, 1, 1), one(payloadEvent(f, transaction(MySQL, 1, 1)[1:]...), queryEvent("shop", "SAVEPOINT a"))) {
		f.Add(byte(e.typ), e.body)
	}
	f.Add(byte(replication.GTID_TAGGED_LOG_EVENT), []byte{2, 76, 0, 0})
	f.Add(byte(replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1), []byte{7, 0, 0, 0, 0, 0, 1, 0, 2, 3, 0x81, 4, 1})
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		for _, flavor := range []Flavor{MySQL, MariaDB} {
			a := scripted(flavor, 1<<20)
			a.watch.table = func(string) bool { return true }
			for _, e := range join(begin(flavor, 1), one(tableMapEvent(7, "shop", "message_00"), event{typ: replication.EventType(typ), body: body}), one(xidEvent())) {
				done, err := a.push(e)
				if err != nil {
					break
				}
				if done != nil && done.rows != nil {
					for _, err := range done.rows.all() {
						if err != nil {
							break
						}
					}
					done.rows.release()
				}
			}
			a.void()
		}
	})
}
