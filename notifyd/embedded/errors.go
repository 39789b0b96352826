package embedded

import "errors"

var (
	// ErrNotFound is returned by Find when there is no usable server.
	ErrNotFound = errors.New("no database server found")
	// ErrInUse is returned by Start and Restart when another process uses the directory.
	ErrInUse = errors.New("database directory in use")
	// ErrPortInUse is returned by Start and Restart when the wanted port is taken.
	ErrPortInUse = errors.New("port in use")
	// ErrOtherServer is returned by Start when the directory was made by the other flavor
	// or by a newer release series.
	ErrOtherServer = errors.New("database made by another server")
	// ErrRunning is returned by Restart when the server runs.
	ErrRunning = errors.New("database is running")
)
