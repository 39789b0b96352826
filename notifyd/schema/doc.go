// Package schema is the store's schema: the names of its tables and columns, its DDL, and
// the one row that says which store this is.
//
// It is imported by the broker, which owns the tables, and by one file of the mirror, which
// has to recognise message tables in the binlog. So it imports nothing but the standard
// library; what changes a server lives below it: package migrate installs and upgrades,
// package preflight checks a server before anything is created, package dsn parses addresses.
//
// Not obvious:
//
//   - Names are unquoted in SQL: none is a reserved word of MySQL 8.0 to 9.x or MariaDB.
//   - A version that has landed is never edited. 001 makes a new store's tables, 002 and 003 add to them.
//     What a topic or subscription can be told is JSON in one column, so it needs no version.
//   - The number of shards is fixed when the store is made; it is in the row of table store.
//   - Every INSERT into a message table names every column of MessageColumnList: with a row
//     image that is not FULL a defaulted column is missing from the binlog.
//   - Info.InstalledGTID was read before the first epoch row existed, and nothing can be
//     inserted into a message table without one. So every message ever is behind it.
package schema
