// Package agenttest has what an agent deals with, for tests: an authority,
// relays, and a control plane.
package agenttest

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"
)

// patience is how long tests wait for what must come.
const patience = time.Minute

// Must fails the test on an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Within returns a context that ends before a test would hang.
func Within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// WaitFor waits until until holds.
func WaitFor(tb testing.TB, what string, until func() bool) {
	tb.Helper()
	ctx := Within(tb)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !until() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			tb.Fatalf("in vain: %s", what)
		}
	}
}

// A Log keeps what is logged.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Logger returns a logger that writes all there is to l.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
