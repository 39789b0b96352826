package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"notifymirror/e2e/stage"
	"notifymirror/mirror"
)

// mirrorTakeover is the longest that a dead canald's stores may stand still, handover the
// longest after a planned stop: less than Kafka waits for one that is silent.
const (
	mirrorTakeover = 10 * time.Second
	handover       = 5 * time.Second
)

// quickTransactions are over before Kafka has given up on the canald that opened them.
const quickTransactions = "transaction_timeout: 3s"

// Two canalds have one store, under load. In a random order the active one is killed, ended,
// and frozen for longer than Kafka waits for it and for its transaction; each time the other
// one goes on in time, and whoever comes back stands by. The mirror is exact all the while.
func TestMirrorsThatDieOrSleepAreReplacedAndLoseNothing(t *testing.T) {
	r := stage.Random(t)
	p := newPlay(t)
	active := p.mirror
	standby := p.Canald("second", quickTransactions).Start()
	troubles := []string{"kill", "freeze", "end", "kill", "freeze", "end"}
	r.Shuffle(len(troubles), func(i, j int) { troubles[i], troubles[j] = troubles[j], troubles[i] })
	for _, trouble := range troubles {
		awaitMirror(t, standby, time.Minute, mirror.Standby)
		p.load.AwaitMore(500, 30*time.Second)
		limit := mirrorTakeover
		began := time.Now()
		switch trouble {
		case "kill":
			active.Kill()
		case "end":
			limit = handover
			active.Stop()
		case "freeze":
			active.Freeze()
		}
		awaitMirror(t, standby, limit, mirror.Copying)
		t.Logf("%s after the %s of %s %s copies", time.Since(began).Round(time.Millisecond), trouble, active.ID, standby.ID)
		p.load.AwaitMore(500, 30*time.Second)
		active, standby = standby, active
		if trouble == "freeze" {
			standby.Thaw()
			standby.Says("this canald was stopped, or cut off from Kafka", time.Minute)
			standby.Says("mirror stands by", time.Minute)
			awaitMirror(t, standby, time.Minute, mirror.Standby)
			standby.Forget()
		} else {
			standby.Start()
		}
		if s := awaitMirror(t, active, time.Second, mirror.Copying); s.Active != active.ID || s.LastErrorAt.After(began) {
			t.Errorf("the active one was disturbed by the other's return: %+v", s)
		}
	}
	p.audit()
}

// awaitMirror waits until a canald is in a state.
func awaitMirror(t *testing.T, canald *stage.Program, limit time.Duration, state mirror.State) (s mirror.Status) {
	t.Helper()
	stage.Eventually(t, limit, fmt.Sprintf("%s is %s", canald.ID, state), func() (err error) {
		if s, err = mirrorStatus(canald); err == nil && s.State != state {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	return s
}

// mirrorStatus is what a canald says of its only store.
func mirrorStatus(canald *stage.Program) (mirror.Status, error) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get("http://" + canald.Ops + "/status")
	if err != nil {
		return mirror.Status{}, err
	}
	defer answer.Body.Close()
	var report mirror.Report
	if err := json.NewDecoder(answer.Body).Decode(&report); err != nil {
		return mirror.Status{}, err
	}
	return report.Stores[0], nil
}
