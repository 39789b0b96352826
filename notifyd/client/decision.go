package client

import (
	notifyv1 "notifymirror/notifyd/api/notify/v1"
)

// Decision is what becomes of a half message. The zero value decides nothing.
type Decision int8

const (
	// Unknown leaves the half undecided: the producer group is asked again later.
	Unknown Decision = iota
	// Commit makes the half an ordinary message, which is delivered and mirrored.
	Commit
	// Rollback removes the half.
	Rollback
)

// String is "unknown", "commit" or "rollback".
func (d Decision) String() string {
	switch d {
	case Commit:
		return "commit"
	case Rollback:
		return "rollback"
	}
	return "unknown"
}

func (d Decision) proto() notifyv1.Decision {
	switch d {
	case Commit:
		return notifyv1.Decision_DECISION_COMMIT
	case Rollback:
		return notifyv1.Decision_DECISION_ROLLBACK
	}
	return notifyv1.Decision_DECISION_UNKNOWN
}

// opposite is the decision that a conflict says was taken.
func (d Decision) opposite() Decision {
	switch d {
	case Commit:
		return Rollback
	case Rollback:
		return Commit
	}
	return Unknown
}

// Half is a prepared message: durable, neither delivered nor mirrored until it is
// committed. It may be kept, as text or bytes, and decided by another process of
// the producer group.
type Half struct {
	// ID is the message's: the name under which the local transaction should
	// record that it happened, so that a check can find out.
	ID string
	// Handle names the half to the brokers.
	Handle []byte
}
