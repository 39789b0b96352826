package canal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// largeEvent is the size from which an event is not read whole.
const largeEvent = 1 << 20

// frames is a connection as go-mysql sees it: without large events. go-mysql would read each
// of them whole, into memory that is twice as much for a while. Here they are a stream.
//
// The protocol's packet is 3 bytes of length, 1 of sequence, and the payload; one of the
// greatest length goes on in the next packet. The sequence numbers are made whole again.
//
// A large packet is looked at only when go-mysql has asked for it, and it does that when it
// is done with all that came before.
type frames struct {
	net.Conn
	in *bufio.Reader
	// large takes a large event, then calls end with what it came to.
	large func(e event, end func(error) error) error
	// checksums: each event ends with one.
	checksums bool

	header []byte // of the packet that is passed on, what is still to be passed
	left   int    // of its payload
	taken  uint8  // packets that were not passed on, modulo 256
}

const (
	packetHeader  = 4
	longestPacket = 1<<24 - 1
)

// install puts frames between go-mysql and its connection, behind TLS.
func (f *frames) install(c *client.Conn) {
	f.Conn, f.in = c.Conn.Conn, bufio.NewReaderSize(c.Conn.Conn, 1<<16)
	c.Conn.Conn = f
}

func (f *frames) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(f.header) == 0 && f.left == 0 {
			if n > 0 && f.in.Buffered() < packetHeader {
				return n, nil
			}
			if large, err := f.next(n == 0); err != nil || large {
				return n, err
			}
		}
		if len(f.header) > 0 {
			k := copy(p[n:], f.header)
			f.header = f.header[k:]
			n += k
			continue
		}
		if n > 0 && f.in.Buffered() == 0 {
			return n, nil
		}
		k, err := f.in.Read(p[n:min(len(p), n+f.left)])
		n, f.left = n+k, f.left-k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// next begins a packet that is passed on. Large ones before it are taken away; not now, and
// large is true, when something that came before them is still to be passed.
func (f *frames) next(now bool) (large bool, err error) {
	for {
		h, err := f.in.Peek(packetHeader)
		if err != nil {
			return false, err
		}
		length := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
		if length < largeEvent {
			f.header, f.left = []byte{h[0], h[1], h[2], h[3] - f.taken}, length
			f.in.Discard(packetHeader) // was peeked at
			return false, nil
		}
		if !now {
			return true, nil
		}
		if err := f.take(); err != nil {
			return false, err
		}
	}
}

// take takes a large event away.
func (f *frames) take() error {
	body := &packets{frames: f}
	var head [1 + replication.EventHeaderSize]byte
	if _, err := io.ReadFull(body, head[:]); err != nil {
		return err
	}
	if head[0] != gomysql.OK_HEADER {
		return fmt.Errorf("%w: a packet of kind %d", ErrCorrupt, head[0])
	}
	e := eventHead(head[1:])
	e.size -= replication.EventHeaderSize
	if f.checksums {
		e.size -= replication.BinlogChecksumLength
	}
	sum := crc32.NewIEEE()
	sum.Write(head[1:])
	e.rest = io.TeeReader(io.LimitReader(body, e.size), sum)
	return f.large(e, func(err error) error {
		if err == nil {
			_, err = io.Copy(io.Discard, e.rest)
		}
		var tail, want []byte
		if f.checksums {
			want = binary.LittleEndian.AppendUint32(want, sum.Sum32())
		}
		if err == nil {
			tail, err = io.ReadAll(io.LimitReader(body, replication.BinlogChecksumLength+1))
		}
		switch {
		case body.lost != nil:
			return body.lost // whatever it was taken for
		case err == nil && !bytes.Equal(tail, want):
			return fmt.Errorf("%w: checksum %x instead of %x", ErrCorrupt, tail, want)
		}
		return err
	})
}

// eventHead reads an event's header; size includes it.
func eventHead(h []byte) event {
	return event{
		typ: replication.EventType(h[4]), flags: binary.LittleEndian.Uint16(h[17:]),
		when: binary.LittleEndian.Uint32(h), server: binary.LittleEndian.Uint32(h[5:]),
		size: int64(binary.LittleEndian.Uint32(h[9:])),
	}
}

// packets are the payloads of a large event's packets.
type packets struct {
	frames *frames
	left   int   // of the current one
	begun  bool  // at least one was
	more   bool  // another one follows
	lost   error // of the connection
}

func (b *packets) Read(p []byte) (int, error) {
	for b.left == 0 {
		if b.begun && !b.more {
			return 0, io.EOF
		}
		var h [packetHeader]byte
		if _, err := io.ReadFull(b.frames.in, h[:]); err != nil {
			return 0, b.gone(err)
		}
		b.left = int(h[0]) | int(h[1])<<8 | int(h[2])<<16
		b.begun, b.more = true, b.left == longestPacket
		b.frames.taken++
	}
	n, err := b.frames.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, b.gone(err)
}

// gone remembers that the connection is lost: nobody must take that for the event's end.
func (b *packets) gone(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		b.lost = err
	}
	return err
}
