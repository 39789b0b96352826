package canal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/go-mysql-org/go-mysql/server"
)

// A primary is a server on the wire that sends scripted events. It speaks the real
// protocol; only what it answers is written by the test.
type primary struct {
	t      testing.TB
	flavor Flavor
	lines  net.Listener
	wait   sync.WaitGroup
	server *server.Server

	mu       sync.Mutex
	vars     map[string]string
	executed string
	purged   string // MySQL
	logged   string // MariaDB
	clock    time.Duration
	dumps    []string // the position that each dump asked for
	serve    func(c *dump)
	conns    []net.Conn
}

// A dump is one connection that asked for the binlog.
type dump struct {
	*primary
	conn *server.Conn
	no   int // 0 for the first
	from *gtidSet
}

// newPrimary starts a primary, whose serve answers each dump; when it returns, the
// connection is closed.
func newPrimary(t testing.TB, f Flavor, serve func(c *dump)) *primary {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &primary{t: t, flavor: f, lines: l, serve: serve, vars: map[string]string{
		"version": "9.7.0-script", "server_id": "1", "server_uuid": scriptSID.String(), "log_bin": "ON", "binlog_format": "ROW",
		"binlog_row_image": "MINIMAL", "binlog_row_metadata": "FULL", "gtid_mode": "ON", "read_only": "OFF",
		"binlog_expire_logs_seconds": "60", "lower_case_table_names": "0",
	}}
	if f == MariaDB {
		s.vars["version"], s.vars["gtid_domain_id"] = "11.4.2-MariaDB-script", "0"
		delete(s.vars, "server_uuid")
	}
	s.server = server.NewServer(s.vars["version"], gomysql.DEFAULT_COLLATION_ID, gomysql.AUTH_NATIVE_PASSWORD, nil, nil)
	s.wait.Go(s.accept)
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.wait.Wait()
	})
	return s
}

func (s *primary) config() Config {
	return Config{
		Addr: s.lines.Addr().String(), User: "reader", Password: "secret", Schema: "shop",
		Watch:           func(table string) bool { return table == "message_00" },
		HeartbeatPeriod: 20 * time.Millisecond, ReadTimeout: 10 * time.Second, SeekTimeout: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
	}
}

func (s *primary) tail(from Position) *tail { return (&store{config: s.config()}).tail(s.t, from) }

func (s *primary) accept() {
	for {
		c, err := s.lines.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.wait.Go(func() {
			defer c.Close()
			d := &dump{primary: s}
			users := server.NewInMemoryAuthenticationHandler(gomysql.AUTH_NATIVE_PASSWORD)
			if err := users.AddUser("reader", "secret"); err != nil {
				return
			}
			var err error
			if d.conn, err = s.server.NewCustomizedConn(c, users, d); err != nil {
				return
			}
			for d.conn.HandleCommand() == nil {
			}
		})
	}
}

// set changes a variable between connections.
func (s *primary) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// asked are the positions of all dumps so far.
func (s *primary) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.dumps...)
}

func (d *dump) HandleQuery(q string) (*gomysql.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := [][]any{}
	names := []string{"Variable_name", "Value"}
	switch {
	case strings.HasPrefix(q, "SHOW GLOBAL VARIABLES WHERE"):
		for k, v := range d.vars {
			rows = append(rows, []any{k, v})
		}
	case strings.HasPrefix(q, "SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'"):
		rows = append(rows, []any{"binlog_checksum", "CRC32"})
	case strings.HasPrefix(q, "SELECT @@global.gtid_executed"):
		rows = append(rows, []any{d.executed + " ", d.purged + " "}) // the library sends an empty text as NULL
	case strings.HasPrefix(q, "SELECT @@global.gtid_binlog_pos"):
		rows = append(rows, []any{d.executed + " ", d.logged + " "})
	case strings.HasPrefix(q, "SELECT UNIX_TIMESTAMP"):
		names = names[:1]
		rows = append(rows, []any{fmt.Sprintf("%.6f", float64(time.Now().Add(d.clock).UnixMicro())/1e6)})
	case q == "SHOW BINARY LOGS":
		return nil, gomysql.NewError(erSpecificAccess, "no REPLICATION CLIENT")
	case strings.HasPrefix(q, "SET @slave_connect_state='"):
		text, _, _ := strings.Cut(q[len("SET @slave_connect_state='"):], "'")
		d.from, _ = parseSet(MariaDB, text)
		return nil, nil
	case strings.HasPrefix(q, "SET "):
		return nil, nil
	default:
		return nil, fmt.Errorf("the script has no answer to %q", q)
	}
	r, err := gomysql.BuildSimpleResultset(names, rows, false)
	return gomysql.NewResult(r), err
}

func (d *dump) HandleOtherCommand(cmd byte, data []byte) error {
	switch cmd {
	case gomysql.COM_REGISTER_SLAVE:
		return nil
	case gomysql.COM_BINLOG_DUMP_GTID:
		n := 10 + binary.LittleEndian.Uint32(data[6:]) + 8
		set, err := gomysql.DecodeMysqlGTIDSet(data[n+4 : n+4+binary.LittleEndian.Uint32(data[n:])])
		if err != nil {
			return err
		}
		d.from, _ = parseSet(MySQL, set.String())
	case gomysql.COM_BINLOG_DUMP:
	default:
		return fmt.Errorf("the script has no answer to command %d", cmd)
	}
	d.set(func() { d.no, d.dumps = len(d.dumps), append(d.dumps, d.from.text()) })
	d.serve(d)
	d.conn.Close()
	return errors.New("closed")
}

func (d *dump) UseDB(string) error                                       { return nil }
func (d *dump) HandleFieldList(string, string) ([]*gomysql.Field, error) { return nil, nil }
func (d *dump) HandleStmtPrepare(string) (int, int, any, error)          { return 0, 0, nil, errors.New("none") }
func (d *dump) HandleStmtExecute(any, string, []any) (*gomysql.Result, error) {
	return nil, errors.New("none")
}
func (d *dump) HandleStmtClose(any) error { return nil }

// send sends events; it reports false when the connection is gone.
func (d *dump) send(events ...event) bool {
	for _, e := range events {
		if d.conn.WritePacket(append([]byte{0, 0, 0, 0, gomysql.OK_HEADER}, raw(e)...)) != nil {
			return false
		}
	}
	return true
}

// part sends the first bytes of an event's packet.
func (d *dump) part(e event, bytes int) {
	b := append([]byte{gomysql.OK_HEADER}, raw(e)...)
	head := []byte{byte(len(b)), byte(len(b) >> 8), byte(len(b) >> 16), d.conn.Sequence}
	b = append(head, b...)
	d.conn.Conn.Conn.Write(b[:min(bytes, len(b)-1)])
}

// fail sends an error packet.
func (d *dump) fail(code uint16, text string) {
	b := []byte{0, 0, 0, 0, gomysql.ERR_HEADER, byte(code), byte(code >> 8)}
	d.conn.WritePacket(append(append(b, "#HY000"...), text...))
}

// head is what comes before the first transaction.
func (d *dump) head() bool {
	b := append([]byte{4, 0}, make([]byte, 50+4)...)
	copy(b[2:], d.vars["version"])
	b = append(append(b, replication.EventHeaderSize), make([]byte, 40+1+4)...)
	return d.send(event{typ: replication.FORMAT_DESCRIPTION_EVENT, body: b})
}

// beat sends heartbeats until the connection is gone.
func (d *dump) beat() {
	for d.send(event{typ: replication.HEARTBEAT_EVENT, body: []byte("binlog.000001")}) {
		<-time.After(5 * time.Millisecond)
	}
}

// log sends the groups that the reader has not.
func (d *dump) log(groups [][]event) bool {
	if !d.head() {
		return false
	}
	for _, g := range groups {
		opened, err := readGTID(g[0])
		if err != nil {
			panic(err)
		}
		if one := newGTIDSet(d.flavor); one.add(opened.gtid) && !d.from.contains(one) && !d.send(g...) {
			return false
		}
	}
	return true
}
