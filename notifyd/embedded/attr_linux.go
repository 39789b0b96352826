package embedded

import "syscall"

// childAttr gives the child its own process group and lets the kernel end it with us.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
