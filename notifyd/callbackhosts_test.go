package notifyd

import (
	"fmt"
	"testing"
)

func TestAHostThatDoesNotAnswerLeavesCallbacksToTheOthers(t *testing.T) {
	var c callbackHosts
	enter := func(host string) (n int) {
		for {
			if cause, _ := c.enter(host); cause != "" {
				return n
			}
			n++
		}
	}
	if n := enter("hangs"); n != callbackShare {
		t.Errorf("%d callbacks to one host, want %d", n, callbackShare)
	}
	if n := enter("well"); n != callbackShare {
		t.Errorf("%d to another, want %d", n, callbackShare)
	}
	for range callbackShare {
		c.leave("hangs", true)
	}
	if n := enter("hangs"); n != callbackSilentShare {
		t.Errorf("%d to a host that has not answered, want %d", n, callbackSilentShare)
	}
	if _, silent := c.enter("hangs"); !silent {
		t.Error("it is not known to be silent")
	}
	c.leave("hangs", false)
	if n := enter("hangs"); n != callbackShare-callbackSilentShare+1 {
		t.Errorf("%d more when it answers again", n)
	}
	for i := range 3 * callbackHostsKept {
		name := fmt.Sprint(i)
		c.enter(name)
		c.leave(name, true)
	}
	if n := len(c.all); n > callbackHostsKept+1 {
		t.Errorf("%d hosts are remembered", n)
	}
}
