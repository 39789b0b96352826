//go:build unix && !linux

package child

import "syscall"

// attributes gives the child its own process group. Only Linux can end it with us; elsewhere it
// outlives a parent that was killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
