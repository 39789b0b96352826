package canal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// A server that is killed while it writes leaves the beginning of an event at the end of its
// binlog file. MariaDB leaves it there for good and refuses to read over it; that transaction
// never committed. Whoever has not come so far yet reads up to it, and on in the next file.
func TestAFileThatACrashCutOffIsReadOver(t *testing.T) {
	db := dbtest.Private(t, embedded.Config{})
	s := newStore(t, db)
	from := s.position(t)
	s.exec(t, insert(1), insert(2))
	db.Kill()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(db.Socket()), "binlog.[0-9]*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("binlog files %v, %v", files, err)
	}
	cutOff(t, files[len(files)-1])
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.exec(t, insert(3), insert(4))
	tl := s.tail(t, from)
	for want := range 4 {
		txn, rows := tl.rows()
		if len(rows) != 1 {
			t.Errorf("transaction %d, %s, has %d rows", want+1, txn.GTID, len(rows))
		}
	}
}

// cutOff adds the beginning of a transaction to a binlog file: its GTID, where there is one to
// copy, and the first bytes of its next event.
func cutOff(t *testing.T, file string) {
	t.Helper()
	const headBytes, mariaGTID = 19, 162
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var gtid []byte
	for at := 4; at+headBytes <= len(log); { // behind the magic number
		size := int(binary.LittleEndian.Uint32(log[at+9:]))
		if log[at+4] == mariaGTID {
			gtid = bytes.Clone(log[at : at+size])
		}
		at += size
	}
	var added []byte
	if gtid != nil {
		seq := binary.LittleEndian.Uint64(gtid[headBytes:])
		binary.LittleEndian.PutUint64(gtid[headBytes:], seq+1)
		binary.LittleEndian.PutUint32(gtid[13:], uint32(len(log)+len(gtid)))
		sum := len(gtid) - 4
		binary.LittleEndian.PutUint32(gtid[sum:], crc32.ChecksumIEEE(gtid[:sum]))
		added = gtid
	}
	next := make([]byte, headBytes, 100)
	next[4] = 2 // a Query event
	binary.LittleEndian.PutUint32(next[9:], 1024)
	added = append(added, append(next, "INSERT INTO message_00"...)...)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(added); err != nil {
		t.Fatal(err)
	}
}
