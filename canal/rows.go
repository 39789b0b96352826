package canal

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"
)

// tableMap names a table for the rows of the statement.
func (a *assembler) tableMap(e event) error {
	if a.open == nil || !a.open.begun {
		return misplaced("a table map")
	}
	id, schema, table, err := tableMapName(e.body)
	if err != nil {
		return err
	}
	a.maps[id] = nil
	if !a.sameSchema(schema) {
		return nil
	}
	def, seen := a.known[string(table)]
	switch {
	case seen && def == nil:
		return nil
	case !seen && !a.watch.table(a.folded(string(table))):
		a.known[string(table)] = nil
		return nil
	case !seen || !bytes.Equal(def.raw, e.body[tableMapID:]):
		if def, err = parseTableMap(e.body); err != nil {
			return err
		}
		a.known[string(table)] = def
	}
	a.maps[id] = def
	return nil
}

func (a *assembler) folded(name string) string {
	if a.watch.fold {
		return strings.ToLower(name)
	}
	return name
}

// inserts keeps the rows of a WRITE_ROWS event on a watched table.
func (a *assembler) inserts(e event) error {
	r, def, err := a.rows(e)
	if err != nil || def == nil {
		return err
	}
	if r.columns != len(def.columns) {
		return fmt.Errorf("%w: rows of %d columns for table %s.%s of %d", ErrCorrupt, r.columns, def.Schema, def.Name, len(def.columns))
	}
	if def, err = a.image(&r, def); err != nil {
		return err
	}
	if a.open.rows == nil {
		a.open.rows = &rowBuffer{limits: a.limits}
	}
	switch s, err := r.stretch(&e); {
	case err != nil:
		return err
	case s != nil && s.length > a.limits.event:
		return tooLarge(fmt.Sprintf("rows of %d bytes for table %s.%s", s.length, def.Schema, def.Name), a.limits.event)
	case s != nil:
		return a.open.rows.addFrom(def, s)
	}
	if e.typ == replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1 {
		if r.rows, err = inflate(r.rows); err != nil {
			return err
		}
	}
	if len(r.rows) == 0 {
		return nil
	}
	return a.open.rows.add(def, r.rows)
}

// image is the definition for an event's row images, which must hold the needed columns.
func (a *assembler) image(r *rowsEvent, def *tableDef) (*tableDef, error) {
	whole := true
	for i, name := range def.Columns {
		if r.has(i) {
			continue
		}
		if whole = false; a.watch.columns == nil || slices.Contains(a.watch.columns, name) {
			return nil, &StopError{
				Reason: ErrPartialRow, What: fmt.Sprintf("column %s of table %s.%s", name, def.Schema, def.Name),
				Mend: "with binlog_row_image=MINIMAL an INSERT must name every column; " + acceptGap,
			}
		}
	}
	if whole {
		return def, nil
	}
	return def.image(r), nil
}

// otherRows takes updates and deletes, which are of no interest.
func (a *assembler) otherRows(e event) error {
	_, def, err := a.rows(e)
	if err != nil || def == nil || e.typ != replication.PARTIAL_UPDATE_ROWS_EVENT {
		return err
	}
	return unknownEvent(fmt.Sprintf("a partial update of table %s.%s", def.Schema, def.Name))
}

// rows reads a rows event and finds its table; def is nil when that is not watched.
func (a *assembler) rows(e event) (r rowsEvent, def *tableDef, err error) {
	if a.open == nil || !a.open.begun {
		return r, nil, misplaced("rows")
	}
	if r, err = parseRows(e.typ, e.body); err != nil {
		return r, nil, err
	}
	def, known := a.maps[r.table]
	if !known && r.table != dummyTable {
		return r, nil, fmt.Errorf("%w: rows of table id %d, which has no table map", ErrCorrupt, r.table)
	}
	if r.statementEnd {
		clear(a.maps)
	}
	return r, def, nil
}
