package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"notifymirror/canal"
	"notifymirror/notifyd/schema"
	"notifymirror/notifyd/schema/dsn"
)

// This file is all that the mirror knows of the store's schema.

// storeInfo is what the mirror must know of a store before it reads its binlog.
type storeInfo struct {
	id        string
	shards    int
	installed string // position before the first message
	flavor    canal.Flavor
	server    canal.ServerID
	addr      string
	// expire is after what time the server drops binlog; 0: never.
	expire time.Duration
	survey canal.Survey
	// position is what the server has logged.
	position canal.Position
	// goOn is the nearest position to one at which the binlog can be read on.
	goOn func(canal.Position) (canal.Position, error)
	// covers tells why the binlog cannot be read from a position on, as far as known.
	covers func(canal.Position) error
}

// parseDSN returns the driver's configuration of a DSN. Its errors never show the password.
func parseDSN(text string) (*mysql.Config, error) { return dsn.Parse(text) }

// primary finds the server of a store that accepts writes.
type primary = dsn.Primary

func newPrimary(cfg *mysql.Config) *primary { return dsn.NewPrimary(cfg) }

// isTwoPrimaries tells whether more than one server of a store accepts writes.
func isTwoPrimaries(err error) bool { return errors.Is(err, dsn.ErrTwoPrimaries) }

// readStore asks the store, over a connection of its own, who it is.
// Its errors are halts when only an operator can mend them.
func readStore(ctx context.Context, cfg *mysql.Config, tail canal.Config) (info storeInfo, err error) {
	addr := cfg.Addr
	if tail.Find != nil { // both questions are for one server
		if addr, err = tail.Find(ctx); err != nil {
			return storeInfo{}, err
		}
		tail.Find = func(context.Context) (string, error) { return addr, nil }
	}
	server, err := inspect(ctx, tail)
	if err != nil {
		return storeInfo{}, err
	}
	db, err := openDB(dsn.At(cfg, addr))
	if err != nil {
		return storeInfo{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	in, err := schema.Read(ctx, db)
	switch {
	case errors.Is(err, schema.ErrNotInstalled) || isServerError(err, 1146):
		return storeInfo{}, haltf(ReasonConfig, ErrConfig, "install it with: notifyd migrate --config FILE",
			"%s: no store is installed", dsn.Redact(cfg))
	case isServerError(err, 1044, 1045, 1049, 1142):
		return storeInfo{}, halt(ReasonConfig,
			"mend the dsn, or the account's grants: REPLICATION SLAVE ON *.* and SELECT ON "+cfg.DBName+".store",
			fmt.Errorf("%w: %s: %w", ErrConfig, dsn.Redact(cfg), err))
	case err != nil:
		return storeInfo{}, fmt.Errorf("store %s: %w", dsn.Redact(cfg), err)
	}
	return storeInfo{
		addr: addr, id: in.StoreID, shards: in.Shards, installed: in.InstalledGTID,
		flavor: server.Flavor, server: server.Server, expire: server.BinlogExpire, survey: server.Survey, covers: server.Covers,
		position: server.Position, goOn: server.GoOn,
	}, nil
}

// at is a configuration for the server alone that was asked.
func (i storeInfo) at(cfg *mysql.Config) *mysql.Config { return dsn.At(cfg, i.addr) }

// openDB is a store's server, over one connection.
func openDB(cfg *mysql.Config) (*sql.DB, error) {
	connector, err := dsn.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return db, nil
}

// nowMicros is the store's clock.
const nowMicros = schema.NowMicros

// lockEpochs keeps every writer out until the transaction ends.
const lockEpochs = "SELECT shard FROM " + schema.TableEpoch + " ORDER BY shard FOR UPDATE"

func highestPos(shard int) string {
	return "SELECT COALESCE(MAX(pos), 0) FROM " + schema.Message(shard)
}

// selectMessages reads a shard's messages above one pos and up to another.
func selectMessages(shard int, above, upTo int64) string {
	return fmt.Sprintf("SELECT %s FROM %s WHERE pos > %d AND pos <= %d ORDER BY pos", schema.MessageColumnList, schema.Message(shard), above, upTo)
}

// backfillProbes are statements that read and lock nothing, and need the rights of a backfill.
func backfillProbes(shards int) []string {
	all := []string{"SELECT shard FROM " + schema.TableEpoch + " WHERE shard < 0 FOR UPDATE"}
	for shard := range shards {
		all = append(all, "SELECT pos FROM "+schema.Message(shard)+" WHERE pos < 0")
	}
	return all
}

// backfillGrants are the statements that give an account those rights.
func backfillGrants(name, account string) string {
	quoted := "`" + strings.ReplaceAll(name, "`", "``") + "`"
	return fmt.Sprintf("GRANT SELECT ON %s.* TO %s; GRANT UPDATE ON %s.%s TO %s", quoted, account, quoted, schema.TableEpoch, account)
}

// quoteAccount turns user@host, as CURRENT_USER() gives it, into 'user'@'host'.
func quoteAccount(account string) string {
	at := max(0, strings.LastIndexByte(account, '@'))
	return "'" + account[:at] + "'@'" + strings.TrimPrefix(account[at:], "@") + "'"
}

// isServerError tells whether the server refused with one of these codes.
func isServerError(err error, codes ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(codes, e.Number)
}

// isMessageTable tells whether a table holds the messages of one of the shards. An
// application's table may have a name of the same form.
func isMessageTable(name string, shards int) bool {
	shard, ok := schema.ParseMessage(name)
	return ok && shard < shards
}

// messageColumns are the columns of a message table that are read. Another one, which a newer
// version or an administrator has added, may be missing from a row.
func messageColumns() []string { return schema.MessageColumns() }

// A rowDecoder reads rows of message tables.
type rowDecoder struct {
	schema string
	table  *canal.Table // of the row before
	shard  int
	column [schema.MessageColumnCount]int // where in a row each column is
}

// message is what a row holds. The error wraps ErrRow.
func (d *rowDecoder) message(row canal.Row) (message, error) {
	if row.Table != d.table {
		if err := d.learn(row.Table); err != nil {
			return message{}, err
		}
	}
	if len(row.Values) != len(d.table.Columns) {
		return message{}, fmt.Errorf("%w: %d columns instead of %d in %s", ErrRow, len(row.Values), len(d.table.Columns), d.table.Name)
	}
	for i, at := range d.column {
		if v := row.Values[at]; v.Null {
			return message{}, fmt.Errorf("%w: no %s in %s", ErrRow, schema.MessageColumns()[i], d.table.Name)
		}
	}
	value := func(column int) canal.Value { return row.Values[d.column[column]] }
	id, err := uuid.FromBytes(value(schema.MessageID).Bytes)
	if err != nil {
		return message{}, fmt.Errorf("%w: id of %d bytes in %s", ErrRow, len(value(schema.MessageID).Bytes), d.table.Name)
	}
	m := message{
		shard: d.shard, id: id,
		pos:      value(schema.MessagePos).Int,
		topic:    value(schema.MessageTopic).Bytes,
		key:      value(schema.MessageKey).Bytes,
		headers:  value(schema.MessageHeaders).Bytes,
		body:     value(schema.MessageBody).Bytes,
		mirrored: value(schema.MessageMirrored).Int != 0,
		bornAt:   value(schema.MessageBornAt).Int,
	}
	if len(m.topic) == 0 {
		return message{}, fmt.Errorf("%w: message %s has no topic", ErrRow, id)
	}
	return m, nil
}

// learn finds the columns of a table.
func (d *rowDecoder) learn(t *canal.Table) error {
	shard, ok := schema.ParseMessage(t.Name)
	if !ok || t.Schema != d.schema {
		return fmt.Errorf("%w: %s.%s is no message table of %s", ErrRow, t.Schema, t.Name, d.schema)
	}
	for i, name := range schema.MessageColumns() {
		if d.column[i] = slices.Index(t.Columns, name); d.column[i] < 0 {
			return fmt.Errorf("%w: %s has no column %s", ErrRow, t.Name, name)
		}
	}
	d.table, d.shard = t, shard
	return nil
}
