package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// pseudoTerminal is a terminal, and what appears on it when it is closed.
func pseudoTerminal(t *testing.T) (tty *os.File, shown func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	var number, locked int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	text := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, master) // ends with an error when the terminal is closed
		text <- b.String()
	}()
	return tty, func() string { _ = tty.Close(); return <-text }
}

func TestMirrorTailShowsABarOnATerminalBesideTheOutput(t *testing.T) {
	kafka := mirrored(t, 4)
	args := []string{"mirror", "tail", "t", "--kafka", kafka, "--from", "oldest", "--to", "newest", "--speed", "4"}
	tty, shown := pseudoTerminal(t)
	var out bytes.Buffer
	code := run(t.Context(), streams{in: strings.NewReader(""), out: &out, err: tty}, args)
	if text := shown(); code != 0 || strings.Count(out.String(), "\n") != 4 || !strings.Contains(text, "reading") || !strings.Contains(text, "%") {
		t.Errorf("exit %d, %q, on the terminal %q", code, out.String(), text)
	}

	tty, shown = pseudoTerminal(t)
	code = run(t.Context(), streams{in: strings.NewReader(""), out: tty, err: tty}, args)
	if text := shown(); code != 0 || strings.Count(text, "body") != 4 || strings.Contains(text, "reading") {
		t.Errorf("exit %d, on the terminal %q", code, text)
	}
}
