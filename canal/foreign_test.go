package canal

import (
	"slices"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
)

// foreignKinds are the events that change rows.
var foreignKinds = []replication.EventType{
	replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2, replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1,
	replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv2, replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1,
	replication.DELETE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv2, replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1,
	replication.PARTIAL_UPDATE_ROWS_EVENT,
}

// alienMap is the map of a table whose columns are of types that do not exist.
func alienMap(id uint64, schema, table string) event {
	e := tableMapEvent(id, schema, table)
	head := 8 + 1 + len(schema) + 1 + 1 + len(table) + 1
	e.body = append(e.body[:head:head], 250, 199, 198, 197, 0xff, 0xff)
	return e
}

// The rows, and but for its name the table, of another table of the same schema are nothing
// that could be decoded here. Beside a message they do no harm.
func TestRowsOfOtherTablesAreSkippedUndecoded(t *testing.T) {
	nonsense := []byte("\xff\xfe nothing that can be decoded")
	flavors(t, func(t *testing.T, f Flavor) {
		for _, kind := range foreignKinds {
			for _, schema := range []string{"shop", "elsewhere"} {
				alien := one(alienMap(9, schema, "orders"), rowsEventOf(kind, 9, 0, nonsense))
				story(t, f, join(begin(f, 1), alien, mapped(10), alien, one(xidEvent())), "1 10")
				story(t, f, join(begin(f, 1), alien, one(xidEvent())), "1")
			}
		}
	})
}

// What a foreign row event costs does not depend on its size: nothing is copied, nothing
// counts against the memory budget.
func TestAForeignRowEventCostsNoMemory(t *testing.T) {
	a := scripted(MySQL, memory)
	for _, e := range begin(MySQL, 1) {
		if _, err := a.push(e); err != nil {
			t.Fatal(err)
		}
	}
	rows := rowsEventOf(replication.WRITE_ROWS_EVENTv2, 9, 3, slices.Repeat([]byte{0xff}, 16<<20))
	alien := alienMap(9, "shop", "orders")
	allocated := testing.AllocsPerRun(100, func() {
		for _, e := range []event{alien, rows} {
			if _, err := a.push(e); err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocated != 0 || a.held != 0 || a.open.rows != nil {
		t.Errorf("%f allocations, %d bytes held, rows %v", allocated, a.held, a.open.rows)
	}
}
