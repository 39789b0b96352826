package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Bounds of what an endpoint can be told.
const (
	MaxURLBytes        = 1000
	DefaultConcurrency = 10
	MaxConcurrency     = 1000
	DefaultTimeout     = 15 * time.Second
	MinTimeout         = 100 * time.Millisecond
	MaxTimeout         = time.Minute
)

// CheckURL says what is wrong with a URL that messages are to be sent to. Where it leads is
// checked when it is dialled.
func CheckURL(text string) error {
	if len(text) > MaxURLBytes {
		return fmt.Errorf("it has %d bytes; at most %d", len(text), MaxURLBytes)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("it cannot be parsed")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("it must begin with https:// or http://")
	case u.Hostname() == "":
		return errors.New("it names no host")
	case u.User != nil:
		return errors.New("it holds a user or password; requests are signed instead")
	case u.Fragment != "":
		return errors.New("it has a fragment (#), which is never sent")
	}
	return nil
}

// CheckConcurrency says what is wrong with a number of requests under way at once.
func CheckConcurrency(n int) error {
	if n < 1 || n > MaxConcurrency {
		return fmt.Errorf("%d is not 1 to %d", n, MaxConcurrency)
	}
	return nil
}

// CheckTimeout says what is wrong with the whole time of one attempt.
func CheckTimeout(d time.Duration) error {
	if d < MinTimeout || d > MaxTimeout {
		return fmt.Errorf("%s is not %s to %s", d, MinTimeout, MaxTimeout)
	}
	return nil
}
