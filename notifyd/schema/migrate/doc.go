// Package migrate installs and upgrades the store's schema. It is safe to run from several
// programs at once, and again after it was cut off at any point.
//
// Not obvious:
//
//   - DDL is not transactional on MySQL. Every statement can be run again, and a version is
//     recorded only after all of its statements and rows are there. So "version N is
//     recorded" means "N is whole", and an interrupted run is completed by the next.
//   - One run at a time works, by GET_LOCK, which the server releases when its session ends.
//     Should that session die while its program lives, two runs may overlap: the rows are
//     written in one transaction, only where absent, so the first to commit wins.
//   - The library's own version table is made here and not by the library, which makes it
//     and its first row in two steps and refuses to continue from between them.
//   - A store at the current version is left alone: no lock, no statement that needs more
//     than SELECT. So the daemon's account needs no right to create tables.
package migrate
