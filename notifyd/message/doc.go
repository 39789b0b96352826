// Package message holds what a message is, and the rules that decide whether one may
// be published. It is pure: no clock, no I/O.
package message
