package notifyd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

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

// callbacks asks URLs about halves.
type callbacks struct {
	http    *http.Client
	running atomic.Int64
	all     sync.WaitGroup
}

func (c *callbacks) free() int { return int(callbackWorkers - c.running.Load()) }

// start runs f beside the caller.
func (c *callbacks) start(ctx context.Context, f func(context.Context)) {
	c.running.Add(1)
	c.all.Go(func() {
		defer c.running.Add(-1)
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
		return d, left.Load(), err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return d, true, fmt.Errorf("status %d", res.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, callbackAnswerBytes+1))
	if err != nil {
		return d, true, err
	}
	d, err = readAnswer(text)
	return d, true, err
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
