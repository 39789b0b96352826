package notifyd

import (
	"encoding/binary"
	"errors"

	"github.com/google/uuid"

	"notifymirror/notifyd/shard"
)

// An ack token names one attempt of one delivery. Its layout, big endian:
//
//	offset  0  1   version: 1, 2 of a copy for one instance, 3 of a memory topic or a replay
//	        1 16   store id
//	       17  2   shard
//	       19  8   pos
//	       27 16   message id
//	       43  4   group id
//	       47  4   attempt
const tokenSize = 51

const (
	tokenVersion       = 1
	tokenVersionCopy   = 2
	tokenVersionMemory = 3
)

type token struct {
	store    uuid.UUID
	shard    int
	pos      shard.Pos
	id       uuid.UUID
	group    int32
	attempt  int
	copy     bool // of a broadcast message
	unstored bool // of a memory topic or a replay: store is the one that holds it, and pos its own
}

var (
	errToken  = errors.New("ack token is not one of this product's")
	errHandle = errors.New("not a handle that Prepare returned")
)

func (t token) encode() []byte {
	b := make([]byte, 0, tokenSize)
	version := byte(tokenVersion)
	switch {
	case t.copy:
		version = tokenVersionCopy
	case t.unstored:
		version = tokenVersionMemory
	}
	b = append(b, version)
	b = append(b, t.store[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(t.shard))
	b = binary.BigEndian.AppendUint64(b, uint64(t.pos))
	b = append(b, t.id[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(t.group))
	return binary.BigEndian.AppendUint32(b, uint32(t.attempt))
}

func decodeToken(b []byte) (token, error) {
	if len(b) != tokenSize || b[0] < tokenVersion || b[0] > tokenVersionMemory {
		return token{}, errToken
	}
	return token{
		store:    uuid.UUID(b[1:17]),
		shard:    int(binary.BigEndian.Uint16(b[17:])),
		pos:      shard.Pos(binary.BigEndian.Uint64(b[19:])),
		id:       uuid.UUID(b[27:43]),
		group:    int32(binary.BigEndian.Uint32(b[43:])),
		attempt:  int(binary.BigEndian.Uint32(b[47:])),
		copy:     b[0] == tokenVersionCopy,
		unstored: b[0] == tokenVersionMemory,
	}, nil
}
