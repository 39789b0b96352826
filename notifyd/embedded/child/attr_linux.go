package child

import "syscall"

// attributes gives the child its own process group and lets the kernel end it with us.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
