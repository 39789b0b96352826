package shard

import "fmt"

// numberBits is how many low bits of a Pos count within an epoch.
const numberBits = 40

// A Pos is the place of a message in its shard: epoch * 2^40 + n. It grows in commit order.
type Pos int64

// At returns the position n of an epoch. n counts from 1.
func At(epoch, n int64) Pos { return Pos(epoch<<numberBits | n) }

// EpochStart lies before every position of the epoch and behind every one of the epochs before.
func EpochStart(epoch int64) Pos { return At(epoch, 0) }

// Epoch is the epoch of the owner that inserted the message.
func (p Pos) Epoch() int64 { return int64(p) >> numberBits }

// Number is n, the count within the epoch.
func (p Pos) Number() int64 { return int64(p) & (1<<numberBits - 1) }

// String has the form epoch:n.
func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Epoch(), p.Number()) }
