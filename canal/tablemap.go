package canal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// The body of a TABLE_MAP event (MySQL 8.0, 8.4, 9.x; MariaDB 10.5 and newer):
//
//	6       table id, re-used after rotation: good only until the statement's end
//	2       flags
//	1+n+1   schema, length before and zero behind
//	1+n+1   table
//	lenenc  number of columns
//	n       a type for each column
//	lenenc+ metadata, 0 to 2 bytes for each column by its type
//	(n+7)/8 which columns may be NULL
//	rest    optional fields (type, lenenc length, value): signedness, charsets, names ...
const (
	optSignedness     = 1
	optDefaultCharset = 2
	optColumnCharset  = 3
	optColumnName     = 4
)

const binaryCharset = 63

// tableMapID is the length of table id and flags, which differ from one map of a
// definition to the next.
const tableMapID = 8

// errShort is a body that ends before its structure does.
var errShort = fmt.Errorf("%w: it ends too early", ErrCorrupt)

// A scanner reads a body from front to back. Once short, it stays short.
type scanner struct {
	b     []byte
	short bool
}

func (s *scanner) take(n int) []byte {
	if n < 0 || n > len(s.b) {
		s.b, s.short = nil, true
		return nil
	}
	out := s.b[:n:n]
	s.b = s.b[n:]
	return out
}

// uint is an unsigned little-endian integer of n bytes, up to 8.
func (s *scanner) uint(n int) uint64 {
	var v uint64
	for i, c := range s.take(n) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

// lenenc is a length-encoded integer.
func (s *scanner) lenenc() int {
	switch c := s.uint(1); c {
	case 0xfc:
		return int(s.uint(2))
	case 0xfd:
		return int(s.uint(3))
	case 0xfe:
		return int(min(s.uint(8), 1<<40))
	default:
		return int(c)
	}
}

// A tableDef is a table's definition with what is needed to decode its rows.
type tableDef struct {
	*Table
	columns []column
	held    int // how many of them a row image holds
	// images are the row images without some column, by the bits of those they have.
	images map[string]*tableDef
	// raw is the event's body behind id and flags: equal for maps of one definition.
	raw []byte
}

// A column tells how a value lies in a row image.
type column struct {
	// width is the number of bytes of an integer, or of the length before a string.
	width    int
	integer  bool
	unsigned bool
	// pad is the N of BINARY(N), whose trailing zero bytes are not logged; else 0.
	pad int
	// absent: the row image lacks it.
	absent bool
}

// tableMapName gives the names in a table map's body, without copying.
func tableMapName(body []byte) (id uint64, schema, table []byte, err error) {
	s := scanner{b: body}
	id = s.uint(6)
	s.take(2)
	schema = s.take(int(s.uint(1)))
	s.take(1)
	table = s.take(int(s.uint(1)))
	if s.take(1); s.short {
		return 0, nil, nil, errShort
	}
	return id, schema, table, nil
}

// parseTableMap reads a definition. It stops at what cannot be decoded: a column type
// outside the few supported ones, or a map without column names.
func parseTableMap(body []byte) (*tableDef, error) {
	s := scanner{b: body}
	s.take(tableMapID)
	d := &tableDef{Table: new(Table), raw: bytes.Clone(s.b), images: map[string]*tableDef{}}
	d.Schema = string(s.take(int(s.uint(1))))
	s.take(1)
	d.Name = string(s.take(int(s.uint(1))))
	s.take(1)
	types := s.take(s.lenenc())
	meta := scanner{b: s.take(s.lenenc())}
	s.take((len(types) + 7) / 8)
	if s.short {
		return nil, errShort
	}
	opts, err := parseOptions(s, types)
	if err != nil {
		return nil, err
	}
	if len(opts.names) != len(types) {
		return nil, &StopError{
			Reason: ErrNoColumnNames, What: fmt.Sprintf("table %s.%s", d.Schema, d.Name),
			Mend: "set binlog_row_metadata=FULL (SET GLOBAL and my.cnf) on the server; " + acceptGap,
		}
	}
	d.Columns = opts.names
	d.columns, d.held = make([]column, len(types)), len(types)
	for i, t := range types {
		c, ok := parseColumn(t, &meta)
		if !ok {
			return nil, &StopError{
				Reason: ErrColumnType,
				What:   fmt.Sprintf("column %s of table %s.%s has type %d", d.Columns[i], d.Schema, d.Name, t),
				Mend:   "change the table back to integer, char, varchar, binary, text and blob columns; " + acceptGap,
			}
		}
		c.unsigned = opts.unsigned[i]
		if opts.charset(i) != binaryCharset {
			c.pad = 0
		}
		d.columns[i] = c
	}
	if meta.short {
		return nil, errShort
	}
	return d, nil
}

// parseColumn reads one column's metadata.
func parseColumn(t byte, meta *scanner) (c column, ok bool) {
	switch t {
	case mysql.MYSQL_TYPE_TINY:
		return column{integer: true, width: 1}, true
	case mysql.MYSQL_TYPE_SHORT:
		return column{integer: true, width: 2}, true
	case mysql.MYSQL_TYPE_INT24:
		return column{integer: true, width: 3}, true
	case mysql.MYSQL_TYPE_LONG:
		return column{integer: true, width: 4}, true
	case mysql.MYSQL_TYPE_LONGLONG:
		return column{integer: true, width: 8}, true
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING:
		return column{width: lengthWidth(int(meta.uint(2)))}, true
	case mysql.MYSQL_TYPE_BLOB:
		w := int(meta.uint(1))
		return column{width: w}, w >= 1 && w <= 4
	case mysql.MYSQL_TYPE_STRING:
		// Two bits of the length hide, inverted, in the real type.
		b := meta.take(2)
		if meta.short {
			return column{}, true
		}
		n := int(b[1]) | int(b[0]&0x30^0x30)<<4
		return column{width: lengthWidth(n), pad: n}, b[0]|0x30 == mysql.MYSQL_TYPE_STRING
	}
	return column{}, false
}

func lengthWidth(maxLength int) int {
	if maxLength > 255 {
		return 2
	}
	return 1
}

// options are the optional fields of a table map that are needed here.
type options struct {
	names    []string
	unsigned []bool
	// charsets of the character columns: a default with exceptions, or one by one.
	charNo     []int // column -> number among the character columns, or -1
	standard   int
	exceptions map[int]int
	each       []int
}

func (o *options) charset(column int) int {
	n := o.charNo[column]
	if n < 0 {
		return 0
	}
	if n < len(o.each) {
		return o.each[n]
	}
	if c, ok := o.exceptions[n]; ok {
		return c
	}
	return o.standard
}

func parseOptions(s scanner, types []byte) (*options, error) {
	o := &options{unsigned: make([]bool, len(types)), charNo: make([]int, len(types)), exceptions: map[int]int{}}
	chars := 0
	for i, t := range types {
		o.charNo[i] = -1
		switch t {
		case mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_VAR_STRING, mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_BLOB:
			o.charNo[i] = chars
			chars++
		}
	}
	for len(s.b) > 0 {
		kind := s.uint(1)
		v := scanner{b: s.take(s.lenenc())}
		switch kind {
		case optSignedness:
			o.readSignedness(v.b, types)
		case optDefaultCharset:
			o.standard = v.lenenc()
			for len(v.b) > 0 {
				n := v.lenenc()
				o.exceptions[n] = v.lenenc()
			}
		case optColumnCharset:
			for len(v.b) > 0 {
				o.each = append(o.each, v.lenenc())
			}
		case optColumnName:
			for len(v.b) > 0 {
				o.names = append(o.names, string(v.take(v.lenenc())))
			}
		}
		if s.short || v.short {
			return nil, errShort
		}
	}
	return o, nil
}

// readSignedness: one bit for each numeric column, highest bit first, 1 = unsigned.
// Other numeric types than the integers make the table unsupported anyway.
func (o *options) readSignedness(bits []byte, types []byte) {
	n := 0
	for i, t := range types {
		switch t {
		case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_LONGLONG:
			o.unsigned[i] = n/8 < len(bits) && bits[n/8]&(0x80>>(n%8)) != 0
			n++
		}
	}
}

// A rowsEvent is a WRITE_ROWS, UPDATE_ROWS or DELETE_ROWS event up to its rows.
//
//	6       table id
//	2       flags: 1 = last of its statement
//	2+n     version 2 only: extra data, whose length counts its own two bytes
//	lenenc  number of columns
//	(n+7)/8 which columns each row image has
//	rest    rows; MariaDB's compressed events have them deflated
type rowsEvent struct {
	table        uint64
	statementEnd bool
	columns      int
	present      []byte
	rows         []byte
}

// dummyTable is the table id of an event that only ends a statement.
const dummyTable = 0xffffff

func parseRows(typ replication.EventType, body []byte) (rowsEvent, error) {
	s := scanner{b: body}
	var r rowsEvent
	r.table = s.uint(6)
	r.statementEnd = s.uint(2)&replication.RowsEventStmtEndFlag != 0
	if isRowsV2(typ) {
		s.take(int(s.uint(2)) - 2)
	}
	r.columns = s.lenenc()
	r.present = s.take((r.columns + 7) / 8)
	r.rows = s.b
	if s.short {
		return r, errShort
	}
	return r, nil
}

// has tells whether the row images have a column.
func (r *rowsEvent) has(column int) bool { return r.present[column/8]&(1<<(column%8)) != 0 }

// image is the definition for the row images of an event.
func (d *tableDef) image(r *rowsEvent) *tableDef {
	if known := d.images[string(r.present)]; known != nil {
		return known
	}
	in := *d
	in.columns, in.held = slices.Clone(d.columns), 0
	for i := range in.columns {
		if in.columns[i].absent = !r.has(i); r.has(i) {
			in.held++
		}
	}
	d.images[string(r.present)] = &in
	return &in
}

func isRowsV2(t replication.EventType) bool {
	switch t {
	case replication.WRITE_ROWS_EVENTv2, replication.UPDATE_ROWS_EVENTv2, replication.DELETE_ROWS_EVENTv2,
		replication.PARTIAL_UPDATE_ROWS_EVENT:
		return true
	}
	return false
}

// maxInflated bounds a compressed event's rows; a server's event is never above 1 GiB.
const maxInflated = 1 << 30

// inflate undoes MariaDB's event compression: 1 byte with the width of the length in its
// low three bits, that many bytes of length (big-endian), then zlib data.
func inflate(b []byte) ([]byte, error) {
	if _, _, err := inflated(b); err != nil {
		return nil, err
	}
	out, err := mysql.DecompressMariadbData(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return out, nil
}

// inflated is how long compressed data will be, and where they begin.
func inflated(b []byte) (length int64, data []byte, err error) {
	if len(b) == 0 || len(b) < 1+int(b[0]&7) {
		return 0, nil, errShort
	}
	var wide [8]byte
	n := int(b[0] & 7)
	copy(wide[8-n:], b[1:1+n])
	size := binary.BigEndian.Uint64(wide[:])
	if size > maxInflated {
		return 0, nil, fmt.Errorf("%w: compressed data of more than %d bytes", ErrCorrupt, maxInflated)
	}
	return int64(size), b[1+n:], nil
}
