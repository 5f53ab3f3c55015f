package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// An Agent is that of the session's sandbox, as it tells of itself: it has no
// admin listener, but answers through a relay.
type Agent struct {
	env  *Env
	user *client.User
}

// NewAgent returns the agent of env's deployment. Whoever makes it calls Close.
func NewAgent(env *Env) *Agent {
	return &Agent{env, ownerOf(env)}
}

// Close ends the connections that wait for the next reading.
func (a *Agent) Close() { a.user.Close() }

// Read returns what the agent uses: from /proc where its process is known, and
// from its metrics. The reading is itself a request that the agent serves, which
// takes some goroutines and leaves garbage.
func (a *Agent) Read(ctx context.Context) (measure.Resource, error) {
	target := a.env.Target
	if a.env.Local != nil {
		target = a.env.Local.Target()
	}
	var r measure.Resource
	if pid := target.SandboxPID(); pid != 0 {
		var err error
		if r, err = measure.ReadProcess(pid); err != nil {
			return r, err
		}
	}
	var text bytes.Buffer
	if err := a.user.Call(ctx, http.MethodGet, "/metrics", url.Values{"format": {"prometheus"}}, nil, &text); err != nil {
		return r, fmt.Errorf("the agent's metrics: %w", err)
	}
	if err := r.ParseMetrics(&text); err != nil {
		return r, fmt.Errorf("the agent's metrics: %w", err)
	}
	if r.Goroutines == 0 || r.HeapBytes == 0 {
		return r, errors.New("the agent's metrics tell no goroutines or no heap")
	}
	return r, nil
}

const (
	// wantedCollections is how many collections of its heap a process has had when
	// what it holds is told: what was in a pool or has a finalizer goes with the
	// second, and the first may have begun before all was over.
	wantedCollections = 2
	// collectionWait is how long is waited for them. Go collects every two minutes
	// at the latest; here sooner, for each reading leaves garbage.
	collectionWait = 5 * time.Minute
	// readingPause is the time between two readings.
	readingPause = 200 * time.Millisecond
	// readingTimeout bounds one.
	readingTimeout = 10 * time.Second
	// leastReadings is how many are made after the collections: a single one may
	// see the work of the moment.
	leastReadings = 5
)

// collected reads what a process uses until its heap has been collected, and
// returns the last reading with the least goroutines of all and the least heap
// of those after the collections. complete is false when these didn't come within
// collectionWait. waiting is called with the collections so far.
func collected(ctx context.Context, read func(context.Context) (measure.Resource, error), waiting func(collections int64)) (r measure.Resource, complete bool, err error) {
	deadline := time.Now().Add(collectionWait)
	var first, least measure.Resource
	for n := 0; n < leastReadings; {
		reading, cancel := context.WithTimeout(ctx, readingTimeout)
		r, err = read(reading)
		cancel()
		if err != nil {
			return r, false, err
		}
		if first == (measure.Resource{}) {
			first, least = r, r
		}
		least.Goroutines = min(least.Goroutines, r.Goroutines)
		since := r.Collections - first.Collections
		complete = since >= wantedCollections
		switch {
		case complete && n == 0:
			least.HeapBytes = r.HeapBytes
			n++
		case complete:
			least.HeapBytes = min(least.HeapBytes, r.HeapBytes)
			n++
		case time.Now().After(deadline):
			return r, false, nil
		default:
			waiting(since)
		}
		select {
		case <-time.After(readingPause):
		case <-ctx.Done():
			return r, false, ctx.Err()
		}
	}
	r.Goroutines, r.HeapBytes = least.Goroutines, least.HeapBytes
	return r, true, nil
}
