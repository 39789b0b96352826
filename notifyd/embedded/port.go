package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// The range of free ports: above the well-known services, below 32768, where Linux begins to
// take the local ports of outgoing connections.
const (
	minPort = 20000
	maxPort = 32000
)

// FreePort finds a port of 127.0.0.1 on which nobody listens; it may be taken before it is
// used. It lies between 20000 and 32000: the system gives outgoing connections no local port
// there, so it can be listened on again after a kill.
func FreePort() (int, error) {
	var err error
	for range 100 {
		port := minPort + rand.IntN(maxPort-minPort)
		if err = checkPort(port); err == nil {
			return port, nil
		}
	}
	return 0, err
}

// checkPort returns ErrPortInUse when somebody listens on the port.
func checkPort(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %s:%d, wanted for the database", ErrPortInUse, host, port)
	}
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return l.Close()
}
