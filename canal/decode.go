package canal

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A row image holds one bit for each of its columns, 1 = NULL, then the values of those
// that are not NULL, one behind the other: integers little-endian in their own width
// (1, 2, 3, 4, 8), strings and blobs behind their length (1 to 4 bytes little-endian).

// decodeRow reads the image at the front of b into values, which has one element for
// each column, and returns what is behind it. Values point into b, or, where a
// BINARY(N) is padded, into scratch, which it returns grown.
func (d *tableDef) decodeRow(b []byte, values []Value, scratch []byte) (rest, grown []byte, err error) {
	nulls := (d.held + 7) / 8
	if len(b) < nulls {
		return nil, scratch, d.rowError(errShort)
	}
	bits, b := b[:nulls], b[nulls:]
	bit := -1
	for i := range d.columns {
		c, v := &d.columns[i], &values[i]
		if c.absent {
			*v = Value{Absent: true}
			continue
		}
		if bit++; bits[bit/8]&(1<<(bit%8)) != 0 {
			*v = Value{Null: true}
			continue
		}
		if len(b) < c.width {
			return nil, scratch, d.rowError(errShort)
		}
		if c.integer {
			n, ok := c.int(b)
			if !ok {
				return nil, scratch, d.rowError(fmt.Errorf("%w: column %s is above the largest int64", ErrCorrupt, d.Columns[i]))
			}
			*v, b = Value{Int: n}, b[c.width:]
			continue
		}
		n := int(c.length(b))
		b = b[c.width:]
		if len(b) < n {
			return nil, scratch, d.rowError(errShort)
		}
		*v, b = Value{Bytes: b[:n:n]}, b[n:]
		if n < c.pad {
			start := len(scratch)
			scratch = append(scratch, v.Bytes...)
			scratch = append(scratch, make([]byte, c.pad-n)...)
			v.Bytes = scratch[start:len(scratch):len(scratch)]
		}
	}
	return b, scratch, nil
}

func (d *tableDef) rowError(err error) error {
	return &StopError{
		Reason: ErrCorrupt, Cause: err, What: fmt.Sprintf("a row of table %s.%s", d.Schema, d.Name),
		Mend: acceptGap,
	}
}

// length is the length before a string.
func (c *column) length(b []byte) uint32 {
	switch c.width {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(binary.LittleEndian.Uint16(b))
	case 3:
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	}
	return binary.LittleEndian.Uint32(b)
}

// int reports false for an unsigned value above the largest int64.
func (c *column) int(b []byte) (int64, bool) {
	var v uint64
	switch c.width {
	case 1:
		v = uint64(b[0])
	case 2:
		v = uint64(binary.LittleEndian.Uint16(b))
	case 3:
		v = uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
	case 4:
		v = uint64(binary.LittleEndian.Uint32(b))
	case 8:
		v = binary.LittleEndian.Uint64(b)
	}
	if c.unsigned {
		return int64(v), v <= math.MaxInt64
	}
	shift := 64 - 8*c.width
	return int64(v<<shift) >> shift, true // sign extension
}
