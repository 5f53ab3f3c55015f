// Package talk measures conversations with stand-ins for coding agents' programs,
// whose words say when they were written.
package talk

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
)

// A word is what a stand-in writes: its number, and when it was written.
type word struct {
	index int
	at    time.Time
}

// parseWord reads a word; false for any other text.
func parseWord(text string) (w word, ok bool) {
	number, stamp, ok := strings.Cut(strings.TrimSpace(text), ":")
	if !ok {
		return w, false
	}
	stamp, _, _ = strings.Cut(stamp, " ")
	index, err := strconv.Atoi(number)
	nanos, err2 := strconv.ParseInt(strings.TrimRight(stamp, "."), 10, 64)
	return word{index, time.Unix(0, nanos)}, err == nil && err2 == nil
}

// An Ear measures the words of one conversation at one socket. It is a
// [client.ChatHandler].
type Ear struct {
	// Static after construction.
	rec         *measure.Recorder
	first, line string // latencies; empty: not measured

	mu sync.Mutex
	// Guarded by mu.
	sent       time.Time // the message whose first word is awaited; zero: none
	words      int       // of the present run
	faults     int       // words that came twice or out of order
	runs       int       // that are over
	subscribed bool
	last       time.Time // when the newest event came
	lost       bool      // the socket was, and nothing has come since
	resumed    time.Time // when the first event came after that
	changed    chan struct{}
}

// NewEar returns an Ear that records how long the first word of a message and each
// word took, under those names; "" for what isn't measured.
func NewEar(rec *measure.Recorder, first, line string) *Ear {
	return &Ear{rec: rec, first: first, line: line, changed: make(chan struct{})}
}

// Frame implements client.ChatHandler.
func (e *Ear) Frame(f client.ChatFrame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch f.Kind {
	case protocol.ChatStreamDelta:
		var delta struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(f.JSON, &delta) == nil {
			e.heard(delta.Content, f.At)
		}
	case protocol.ChatComplete:
		e.runs++
	case protocol.ChatSubscribedKind:
		e.subscribed = true
	}
	if f.Seq > 0 {
		e.last = f.At
		if e.lost {
			e.lost, e.resumed = false, f.At
		}
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// heard counts a word. It is called with mu held.
func (e *Ear) heard(text string, at time.Time) {
	w, ok := parseWord(text)
	if !ok {
		return
	}
	if e.first != "" && !e.sent.IsZero() {
		e.rec.Latency(e.first).Record(e.sent, at)
		e.sent = time.Time{}
	}
	if e.line != "" {
		e.rec.Latency(e.line).Record(w.at, at)
	}
	if w.index != e.words && w.index != 0 {
		e.faults++
	}
	e.words = w.index + 1
}

// Lost implements client.ChatHandler.
func (e *Ear) Lost(time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = true
}

// asked notes that a message is sent.
func (e *Ear) asked() (runs int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent, e.words = time.Now(), 0
	return e.runs
}

// Heard returns how many words of the last run have come, how many words came
// twice or out of order, and when the newest event came.
func (e *Ear) Heard() (words, faults int, last time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.words, e.faults, e.last
}

// Subscribed waits for the answer to a subscription.
func (e *Ear) Subscribed(ctx context.Context, within time.Duration) error {
	return e.await(ctx, within, "chat_subscribed", func() bool { return e.subscribed })
}

// Runs waits until so many runs are over.
func (e *Ear) Runs(ctx context.Context, within time.Duration, runs int) error {
	return e.await(ctx, within, "complete", func() bool { return e.runs >= runs })
}

// Word waits until a word of the present run has come, and forgets earlier losses
// of sockets.
func (e *Ear) Word(ctx context.Context, within time.Duration) error {
	return e.await(ctx, within, "a word", func() bool {
		e.resumed = time.Time{}
		return e.words > 0
	})
}

// Resumed waits for the first event after the next loss of a socket, and returns
// when it came.
func (e *Ear) Resumed(ctx context.Context, within time.Duration) (at time.Time, err error) {
	err = e.await(ctx, within, "an event after the socket's loss", func() bool {
		at = e.resumed
		return !at.IsZero()
	})
	return at, err
}

// await waits until done returns true; done is called with mu held.
func (e *Ear) await(ctx context.Context, within time.Duration, what string, done func() bool) error {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		e.mu.Lock()
		ok, changed := done(), e.changed
		e.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return fmt.Errorf("chat: %s did not come within %v", what, within)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
