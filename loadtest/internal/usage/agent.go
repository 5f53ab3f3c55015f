package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
)

// An Agent is that of the session's sandbox, as it tells of itself: it has no
// admin listener, but answers through a relay.
type Agent struct {
	of   Deployment
	user *client.User
}

// A Deployment may change while it is watched: a process that is restarted has
// another pid.
type Deployment interface {
	// Now returns the deployment as it is now.
	Now() *stack.Target
	// Owner returns the owner of its session, for who closes it.
	Owner() *client.User
}

// NewAgent returns the agent of a deployment. Its caller calls Close.
func NewAgent(of Deployment) *Agent { return &Agent{of, of.Owner()} }

// Close ends the connections that wait for the next reading.
func (a *Agent) Close() { a.user.Close() }

// Read returns what the agent uses: from /proc where its process is known, and
// from its metrics. The reading is itself a request that the agent serves, which
// takes some goroutines and leaves garbage.
func (a *Agent) Read(ctx context.Context) (measure.Resource, error) {
	var r measure.Resource
	if pid := a.of.Now().SandboxPID(); pid != 0 {
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
	// WantedCollections is how many collections of its heap a process has had when
	// what it holds is told: what was in a pool or has a finalizer goes with the
	// second, and the first may have begun before all was over.
	WantedCollections = 2
	// CollectionWait is how long is waited for them. Go collects every two minutes
	// at the latest; here sooner, for each reading leaves garbage.
	CollectionWait = 5 * time.Minute
	// readingPause is the time between two readings.
	readingPause = 200 * time.Millisecond
	// readingTimeout bounds one.
	readingTimeout = 10 * time.Second
	// leastReadings is how many are made after the collections: a single one may
	// see the work of the moment.
	leastReadings = 5
)

// Collected reads what a process uses until its heap has been collected, and
// returns the last reading with the least goroutines of all and the least heap
// of those after the collections. complete is false when these didn't come within
// CollectionWait. waiting is called with the collections so far.
func Collected(ctx context.Context, read func(context.Context) (measure.Resource, error), waiting func(collections int64)) (r measure.Resource, complete bool, err error) {
	deadline := time.Now().Add(CollectionWait)
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
		complete = since >= WantedCollections
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
		if err := pause.For(ctx, readingPause); err != nil {
			return r, false, err
		}
	}
	r.Goroutines, r.HeapBytes = least.Goroutines, least.HeapBytes
	return r, true, nil
}
