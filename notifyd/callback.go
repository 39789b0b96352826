package notifyd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"notifymirror/notifyd/store"
)

const (
	// callbackTimeout is a callback's whole time, answer included; a later answer counts as none.
	callbackTimeout = 5 * time.Second
	// callbackWorkers is how many callbacks may be under way from one broker.
	callbackWorkers = 16
	// callbackAnswerBytes is the longest answer that is read.
	callbackAnswerBytes = 4 << 10
)

// callbacks asks URLs about halves, a bounded number at once.
type callbacks struct {
	http  *http.Client
	slots *semaphore.Weighted // one for each callback under way, or about to be
	hosts callbackHosts
	all   sync.WaitGroup
}

func newCallbacks(client *http.Client) *callbacks {
	return &callbacks{http: client, slots: semaphore.NewWeighted(callbackWorkers)}
}

// take takes up to most free slots, and returns how many. Each is given back, or used by start.
func (c *callbacks) take(most int) int {
	n := 0
	for n < most && c.slots.TryAcquire(1) {
		n++
	}
	return n
}

func (c *callbacks) give(n int) { c.slots.Release(int64(n)) }

// start runs f beside the caller, in a slot that was taken.
func (c *callbacks) start(ctx context.Context, f func(context.Context)) {
	c.all.Go(func() {
		defer c.give(1)
		f(ctx)
	})
}

// A callbackQuestion is the JSON that a URL is asked with, by POST.
type callbackQuestion struct {
	ID            string            `json:"id"`
	ProducerGroup string            `json:"producer_group"`
	Topic         string            `json:"topic"`
	Key           string            `json:"key"`
	Headers       map[string]string `json:"headers"`
	Body          []byte            `json:"body"` // base64
	PreparedAt    int64             `json:"prepared_at_us"`
	Number        int               `json:"number"`
}

// callbackAnswer is what a URL answers with status 200: {"decision": "commit"}, "rollback" or
// "unknown". Everything else is no answer.
type callbackAnswer struct {
	Decision string `json:"decision"`
}

// ask asks the half's URL. asked is false when the request did not leave.
func (c *callbacks) ask(ctx context.Context, h store.Half) (d store.Decision, asked bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	body, err := json.Marshal(callbackQuestion{ID: h.Msg.ID.String(), ProducerGroup: h.Group, Topic: h.Msg.Topic, Key: h.Msg.Key,
		Headers: h.Msg.Headers, Body: h.Msg.Body, PreparedAt: h.Msg.BornAt, Number: h.Checks})
	if err != nil {
		return d, false, err
	}
	var left atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { left.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.CheckURL, bytes.NewReader(body))
	if err != nil {
		return d, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return d, left.Load(), plainCause(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return d, true, fmt.Errorf("status %d", res.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, callbackAnswerBytes+1))
	if err != nil {
		return d, true, plainCause(err)
	}
	d, err = readAnswer(text)
	return d, true, err
}

// errSilent is why a call failed whose time was over.
var errSilent = fmt.Errorf("no answer within %s", callbackTimeout)

// plainCause is why a call failed, without the URL, which stands beside it wherever it is shown.
func plainCause(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errSilent
	}
	var call *url.Error
	if errors.As(err, &call) {
		return call.Err
	}
	return err
}

func readAnswer(text []byte) (store.Decision, error) {
	var a callbackAnswer
	if len(text) > callbackAnswerBytes {
		return store.Undecided, fmt.Errorf("the answer is longer than %d bytes", callbackAnswerBytes)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return store.Undecided, fmt.Errorf("the answer is not JSON: %w", err)
	}
	switch a.Decision {
	case "commit":
		return store.Committed, nil
	case "rollback":
		return store.RolledBack, nil
	case "unknown":
		return store.Undecided, nil
	}
	return store.Undecided, fmt.Errorf("the answer's decision is %q; it may be commit, rollback or unknown", a.Decision)
}
