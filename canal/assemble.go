package canal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
)

// The grammar of the stream. Each group is one transaction with one GTID.
//
//	stream  = { frame | group }
//	frame   = ROTATE | FORMAT_DESCRIPTION | PREVIOUS_GTIDS | GTID_LIST | STOP | HEARTBEAT | ...
//
//	MySQL:
//	group   = GTID ( begin { item } end | PAYLOAD | QUERY "XA COMMIT|ROLLBACK" | QUERY ddl )
//	begin   = QUERY "BEGIN" | QUERY "XA START"
//	PAYLOAD = compressed ( begin { item } end )
//
//	MariaDB:
//	group   = GTID { item } end                    ; GTID stands for BEGIN
//	        | GTID(standalone) { variable } QUERY  ; DDL, XA COMMIT, XA ROLLBACK
//
//	item    = TABLE_MAP | ROWS | QUERY savepoint | QUERY text | QUERY "XA END" | variable | note
//	end     = XID                     ; committed
//	        | QUERY "COMMIT"          ; committed, too: engines without transactions
//	        | QUERY "ROLLBACK"        ; logged because something could not be undone: no rows
//	        | XA_PREPARE              ; not committed yet; with rows of ours: stop
//	        | XA_PREPARE(one phase)   ; committed
//	variable = INTVAR | RAND | USER_VAR
//	note    = ROWS_QUERY | ANNOTATE_ROWS | IGNORABLE | VIEW_CHANGE | ...
//
// A group that is not followed to its end did not happen: a GTID before the end, and a
// FORMAT_DESCRIPTION (the server had crashed there), void what was collected.

// An event is one event of the stream; body is without header and checksum. Of a large
// event it is empty, or the beginning, and rest reads on.
type event struct {
	typ    replication.EventType
	flags  uint16
	when   uint32 // seconds since 1970 by the server's clock
	server uint32 // server id of the origin
	body   []byte
	rest   io.Reader
	size   int64 // of a large event, body and rest
}

// A txn is a whole transaction, as assembled.
type txn struct {
	kind Kind
	gtid gtid
	when time.Time
	rows *rowBuffer // nil without rows
}

// watch tells which rows matter.
type watch struct {
	schema string
	table  func(name string) bool
	// columns that each row image must hold; nil: all
	columns []string
	// fold: the server keeps names in lower case, or compares them without case.
	fold bool
}

// An assembler turns events into transactions: each whole, or not at all. It is pure
// but for the rowBuffer, which may write a file.
type assembler struct {
	flavor Flavor
	watch  watch
	limits bufferLimits

	known map[string]*tableDef // last definition of each watched table; nil = not watched
	maps  map[uint64]*tableDef // of the statement; nil = not watched
	voids uint64               // groups voided since the owner last looked

	open *group // nil between groups
}

// A group is a transaction being collected.
type group struct {
	gtid       gtid
	when       time.Time // zero: take the end marker's
	begun      bool      // MySQL: BEGIN seen; MariaDB: always
	standalone bool      // MariaDB: one statement, no end marker
	rows       *rowBuffer
	savepoints []savepoint
}

type savepoint struct {
	name string
	mark int64
}

func newAssembler(f Flavor, w watch, l bufferLimits) *assembler {
	return &assembler{flavor: f, watch: w, limits: l, known: map[string]*tableDef{}, maps: map[uint64]*tableDef{}}
}

// push takes the next event. It returns a transaction when the event ended one.
// An error ends the stream: whatever was open is void.
func (a *assembler) push(e event) (*txn, error) {
	t, err := a.step(e)
	if err == nil {
		return t, nil
	}
	var stop *StopError
	switch {
	case errors.As(err, &stop) && a.open != nil:
		err = stop.at("GTID " + a.open.gtid.text(a.flavor))
	case stop == nil && errors.Is(err, ErrCorrupt):
		err = &StopError{Reason: ErrCorrupt, Cause: err, What: e.typ.String(), Where: a.place(), Mend: acceptGap}
	}
	a.void()
	return nil, err
}

func (a *assembler) place() string {
	if a.open == nil {
		return ""
	}
	return "GTID " + a.open.gtid.text(a.flavor)
}

func (a *assembler) step(e event) (*txn, error) {
	if e.rest != nil {
		if err := a.lead(&e); err != nil {
			return nil, err
		}
	}
	switch e.typ {
	case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
		return nil, a.begin(e)
	case replication.ANONYMOUS_GTID_EVENT:
		return nil, &StopError{
			Reason: ErrSettings, What: "a transaction without a GTID",
			Mend: "SET GLOBAL gtid_mode = ON (by way of ON_PERMISSIVE) on the server, then " + acceptGap,
		}
	case replication.FORMAT_DESCRIPTION_EVENT:
		a.void()
		return nil, nil
	case replication.QUERY_EVENT, replication.MARIADB_QUERY_COMPRESSED_EVENT, replication.EXECUTE_LOAD_QUERY_EVENT:
		return a.query(e)
	case replication.XID_EVENT:
		return a.end(e, true)
	case replication.XA_PREPARE_LOG_EVENT:
		return a.xaPrepare(e)
	case replication.TABLE_MAP_EVENT:
		return nil, a.tableMap(e)
	case replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2, replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1:
		return nil, a.inserts(e)
	case replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv2, replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1,
		replication.DELETE_ROWS_EVENTv1, replication.DELETE_ROWS_EVENTv2, replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1,
		replication.PARTIAL_UPDATE_ROWS_EVENT:
		return nil, a.otherRows(e)
	case replication.TRANSACTION_PAYLOAD_EVENT:
		return a.payload(e)
	case replication.INCIDENT_EVENT:
		return nil, &StopError{Reason: ErrIncident, What: "the server could not log something", Mend: acceptGap}
	case replication.ROTATE_EVENT, replication.STOP_EVENT, replication.PREVIOUS_GTIDS_EVENT,
		replication.MARIADB_GTID_LIST_EVENT, replication.MARIADB_BINLOG_CHECKPOINT_EVENT, replication.MARIADB_START_ENCRYPTION_EVENT,
		replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2,
		replication.INTVAR_EVENT, replication.RAND_EVENT, replication.USER_VAR_EVENT,
		replication.ROWS_QUERY_EVENT, replication.MARIADB_ANNOTATE_ROWS_EVENT, replication.IGNORABLE_EVENT,
		replication.TRANSACTION_CONTEXT_EVENT, replication.VIEW_CHANGE_EVENT,
		replication.BEGIN_LOAD_QUERY_EVENT, replication.APPEND_BLOCK_EVENT, replication.DELETE_FILE_EVENT:
		return nil, nil
	}
	if e.flags&replication.LOG_EVENT_IGNORABLE_F != 0 {
		return nil, nil // the server itself says that a reader may skip it
	}
	return nil, unknownEvent(fmt.Sprintf("event kind %d (%s)", e.typ, e.typ))
}

func unknownEvent(what string) *StopError {
	return &StopError{Reason: ErrUnknownEvent, What: what, Mend: "use a version of the mirror that knows it; or " + acceptGap}
}

// void forgets the open group.
func (a *assembler) void() {
	if a.open == nil {
		return
	}
	if a.open.rows != nil {
		a.open.rows.release()
	}
	a.open = nil
	a.voids++
}

// begin opens a group.
func (a *assembler) begin(e event) error {
	a.void()
	clear(a.maps)
	g, err := readGTID(e)
	if err != nil {
		return err
	}
	a.open = g
	return nil
}

// end closes the group. Without rows of a watched table the transaction is foreign.
func (a *assembler) end(e event, committed bool) (*txn, error) {
	g := a.open
	if g == nil || !g.begun {
		return nil, misplaced("the end of a transaction")
	}
	t := &txn{kind: Foreign, gtid: g.gtid, when: g.when}
	if t.when.IsZero() {
		t.when = time.Unix(int64(e.when), 0).UTC()
	}
	if g.rows != nil && (!committed || g.rows.size == 0) {
		g.rows.release()
		g.rows = nil
	}
	if g.rows != nil {
		if err := g.rows.seal(); err != nil {
			return nil, err
		}
		t.kind, t.rows = Rows, g.rows
	}
	a.open = nil
	return t, nil
}

// misplaced is an event at a place where the grammar has none. A server does not send
// such a stream, so the first guess is a fault on the way.
func misplaced(what string) error {
	return fmt.Errorf("%w: %s outside of a transaction", ErrCorrupt, what)
}

// xaPrepare ends a group whose transaction may still be rolled back.
func (a *assembler) xaPrepare(e event) (*txn, error) {
	onePhase := len(e.body) > 0 && e.body[0] != 0
	if !onePhase && a.hasRows() {
		return nil, xaError()
	}
	return a.end(e, true)
}

func (a *assembler) hasRows() bool {
	return a.open != nil && a.open.rows != nil && a.open.rows.size > 0
}

func xaError() *StopError {
	return &StopError{
		Reason: ErrXA, What: "its rows are in the binlog before it is known whether they commit",
		Mend: "let no application write to the store in XA transactions; " + acceptGap,
	}
}

// query takes a Query event: a mark of the grammar, DDL, or rows changed by a text.
func (a *assembler) query(e event) (*txn, error) {
	q, err := readQuery(e)
	if err != nil {
		return nil, err
	}
	kind, name := readStatement(q.text)
	if kind == dataStatement && (a.sameSchema(q.schema) || mentions(q.text, a.watch.schema)) {
		return nil, &StopError{
			Reason: ErrTextDML, What: fmt.Sprintf("%.100q", q.text),
			Mend: "SET GLOBAL binlog_format=ROW, let no session change it, and restart the session that did; " + acceptGap,
		}
	}
	g := a.open
	if g == nil {
		if kind == emptyStatement {
			return nil, nil
		}
		return nil, misplaced("a statement")
	}
	switch kind {
	case beginStatement, xaStartStatement:
		g.begun = true
		return nil, nil
	case commitStatement:
		return a.end(e, true)
	case rollbackStatement:
		return a.end(e, false)
	case xaDecisionStatement:
		if a.hasRows() {
			return nil, xaError()
		}
		g.begun = true
		return a.end(e, true)
	case savepointStatement:
		g.setSavepoint(name)
		return nil, nil
	case rollbackToStatement:
		return nil, g.rollbackTo(name)
	case xaEndStatement:
		return nil, nil
	case emptyStatement:
		if a.flavor == MariaDB {
			return nil, nil // stands for an event that the server thinks we do not know
		}
	}
	if g.begun && !g.standalone {
		return nil, nil
	}
	g.begun = true
	return a.end(e, true)
}

// setSavepoint remembers where rows are now; a name set again forgets the first.
func (g *group) setSavepoint(name string) {
	g.savepoints = slices.DeleteFunc(g.savepoints, func(s savepoint) bool { return s.name == name })
	s := savepoint{name: name}
	if g.rows != nil {
		s.mark = g.rows.size
	}
	g.savepoints = append(g.savepoints, s)
}

// rollbackTo drops the rows behind a savepoint. It is logged only when something else
// in the transaction could not be undone.
func (g *group) rollbackTo(name string) error {
	i := slices.IndexFunc(g.savepoints, func(s savepoint) bool { return s.name == name })
	if i < 0 {
		return unknownEvent(fmt.Sprintf("rollback to savepoint %q, which was not set", name))
	}
	g.savepoints = g.savepoints[:i+1]
	if g.rows == nil {
		return nil
	}
	return g.rows.truncate(g.savepoints[i].mark)
}

func (a *assembler) sameSchema(schema []byte) bool {
	return string(schema) == a.watch.schema || a.watch.fold && strings.EqualFold(string(schema), a.watch.schema)
}
