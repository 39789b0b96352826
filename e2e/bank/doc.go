// Package bank is the programs of a story: two banks, each with a database of its own, between
// which money is transferred by messages. Both run as processes that may be killed at any moment.
//
//	order -> debit.go  A takes the money and, in the same transaction, notes the transfer; the
//	                   message to B is a half that is committed if that transaction was
//	      -> credit.go B gives the money, once for each transfer; or, where the account is
//	                   closed, notes the refusal and sends a refund: in turn by the outbox, in
//	                   the same transaction, and by a half
//	      -> undo.go   A gives the money back, once for each transfer
//
// check.go answers what became of a half's transaction, tables.go is a bank's database,
// accident.go lets a process die where a plan says so, main.go is the program.
//
// Not obvious:
//
//   - The truth about a half is a row of table sent, under its id. Either the local transaction
//     inserts it, or a check does, and then that transaction can never commit.
//   - An order may be tried several times, each time with another half. Only one of them takes
//     it: the order is done in the transaction of the debit.
//   - A message says which accident is planned for its transfer. The accident is noted before it
//     happens, so that it happens once.
package bank
