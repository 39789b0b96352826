// Package embedded runs a private MySQL or MariaDB server as a child process, for
// `notify dev` and for tests. It is a real server with the durable settings that a store
// needs; only its size is small.
//
// A directory holds everything that belongs to one server:
//
//	DIR/lock         held by this process and by the server; contains our pid
//	DIR/server.log   what the server says
//	DIR/tmp/         its temporary files
//	DIR/db/data/     the server's data directory
//	DIR/db/made-by   flavor and version that made it
//	DIR/db/password  of the account that DSN uses
//
// DIR/db appears whole or not at all: it is made as DIR/db.new and renamed.
//
// # Accounts
//
// root has no password and can be reached through the socket DIR/db/data/mysqld.sock
// alone, which the directory's mode 0700 keeps to its owner. DSN uses the account
// notify@127.0.0.1 with every privilege and a random password, set anew at each start.
// The server listens on 127.0.0.1 only.
//
// # Not obvious
//
//   - The server dies with us by SIGKILL (package child): nothing is lost by it, and the next
//     start need not wait for an orderly end.
//   - The server inherits the lock's file descriptor, so the lock outlives a killed parent
//     for as long as its server (or an initialisation) does; the next start waits for that.
//   - Ctrl-C in a terminal reaches us and not the server: we stop it when those who use it
//     have stopped.
//   - Temporary files have a directory of their own: a MariaDB that starts removes those that
//     it finds, also when they belong to another server that runs. In a shared directory,
//     one in six initialisations beside others failed for it.
//   - Nothing from /etc/mysql is read: --no-defaults comes first.
//   - The socket's name is relative to the data directory, so a long path cannot exceed the
//     107 bytes that a socket address holds.
//   - MySQL wants --secure-file-priv=NULL (Debian's default directory may be missing, and
//     then it stops); MariaDB stops when it gets exactly that.
//   - As root, both servers refuse to run without --user. It is root then, because another
//     account could not reach a directory below root's home, and because a change of
//     account would clear the signal of the first point.
//   - Free ports are looked for below the range from which the system takes the local ports
//     of outgoing connections: a client that dials the port of a killed server can otherwise
//     be given that same port, and be connected to itself.
package embedded
