//go:build unix && !linux

package embedded

import "syscall"

// childAttr gives the child its own process group. Only Linux can end it with us; elsewhere a
// server whose parent was killed holds its lock, and the next start says so.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
