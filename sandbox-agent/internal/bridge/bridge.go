// Package bridge connects a program that speaks MCP over its standard input and
// output to the agent's MCP server, whose sessions it keeps alive beyond the
// agent's own restarts.
//
// What either side says is passed on as it is. The server pushes: its stream is
// always open, and nothing is asked for again and again. When the agent is back
// after a restart, the bridge opens a new session with the program's own
// initialize and tells the program that lists may have changed.
//
// A call is sent once. Only what the server surely hasn't taken in is sent
// again: a connection that wasn't made, a session that it doesn't know, a secret
// that it refuses. A call whose connection breaks ends with an error, unless the
// server numbers its events: then its stream is resumed.
//
// The MCP SDK's client transport can't do that. It decodes and encodes each
// message, which changes ids beyond 2^53 and drops members that it doesn't know;
// it takes no batches; and it takes every request that fails for one that the
// server hasn't seen.
package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// Options say between what a bridge runs.
type Options struct {
	In  io.Reader    // the program's messages, one a line
	Out io.Writer    // what is said to it
	Log *slog.Logger // nil: silent

	// Flags, then variables of the environment, then the file Credentials say
	// where the server is and who asks. A file that is about the same terminal
	// replaces what the others said once the server refuses that, or is gone:
	// the agent writes it anew when it starts.
	Flags       protocol.MCPCredentials
	Getenv      func(string) string // nil: there are no variables
	Credentials string              // "": there is no file

	dial dialFunc // in tests; nil: over TCP
}

// limits bound what a bridge waits for and holds.
type limits struct {
	line    int           // bytes of one message, either way
	calls   int           // that wait for their answers
	asked   int           // requests of the server that wait for the program's answers
	away    time.Duration // that a call waits for a server which isn't there
	silence time.Duration // of the server, until a call is given up
	note    time.Duration // to hand over a message that has no answer
	stream  time.Duration // that the program waits for the server's stream
	drain   time.Duration // for answers after the end of input
	again   time.Duration // after which a cancellation is repeated
	leave   time.Duration // to end the session, and for what still runs
	pause   time.Duration // the longest one between attempts
}

func usual() limits {
	return limits{
		line: 10 << 20, calls: 128, asked: 256,
		away: 30 * time.Second, silence: 120 * time.Second, note: 10 * time.Second, stream: time.Second,
		drain: 5 * time.Second, again: 100 * time.Millisecond, leave: time.Second, pause: time.Second,
	}
}

// Run passes messages on until the input ends, ctx does or the output fails;
// only the last two are errors. After the end of input it waits a moment for
// the answers to calls, and ends the session. It fails at once when nothing says
// where the server is. A Read or Write that is blocked when Run returns stays so.
func Run(ctx context.Context, o Options) error { return run(ctx, o, usual()) }

func run(ctx context.Context, o Options, l limits) error {
	b, err := newBridge(o, l)
	if err != nil {
		return err
	}
	ctx, b.stop = context.WithCancelCause(ctx)
	defer b.stop(nil)
	lines := make(chan line)
	go readLines(ctx, o.In, l.line, lines)
	b.running.Go(func() { b.keep(ctx) })
	for open := true; open; {
		select {
		case text, more := <-lines:
			if open = more; open {
				b.handle(ctx, text)
			}
		case <-ctx.Done():
			open = false
		}
	}
	b.drain(ctx)
	b.leave()
	err = context.Cause(ctx)
	b.stop(errLeaving)
	b.join()
	return err
}

// A bridge is one program's connection to the server.
type bridge struct {
	// Static after construction.
	limits limits
	log    *slog.Logger
	client *http.Client
	file   string
	given  protocol.MCPCredentials // by flags and variables
	tab    string                  // of the session's browser, that the program is bound to; "": none
	stop   context.CancelCauseFunc

	running sync.WaitGroup // all goroutines but the one that reads lines

	writing sync.Mutex // held for one line of out
	out     io.Writer

	mu          sync.Mutex
	credentials protocol.MCPCredentials // Guarded by mu.
	hello       *message                // Guarded by mu. The program's initialize, once it was accepted.
	initialized bool                    // Guarded by mu. The program has said so.
	session     *session                // Guarded by mu. nil before the first.
	changed     chan struct{}           // Guarded by mu. Closed and made anew with each change of the session.
	calls       map[string]*call        // Guarded by mu. By id; those that have no answer yet.
	trouble     error                   // Guarded by mu. Why no session can be opened, if that won't pass soon.
	asked       map[string]question     // Guarded by mu. Requests of the server without an answer, by the id that the program knows.
	renamed     uint64                  // Guarded by mu. Ids that were made up for them.
}

func newBridge(o Options, l limits) (*bridge, error) {
	b := &bridge{
		limits: l, log: o.Log, client: newClient(o.dial), file: o.Credentials, out: o.Out,
		changed: make(chan struct{}), calls: make(map[string]*call), asked: make(map[string]question),
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.given = fromEnvironment(o.Flags, o.Getenv)
	if o.Getenv != nil {
		b.tab = o.Getenv(toolbox.TabVariable)
	}
	found, err := find(b.given, b.file)
	if err != nil {
		return nil, err
	}
	b.credentials = found
	return b, nil
}

// handle takes one line of the program's. It returns when a later message can't
// overtake it.
func (b *bridge) handle(ctx context.Context, l line) {
	text := bytes.TrimSpace(l.text)
	switch {
	case l.over:
		b.write(failure(idWithin(text), codeInvalid, fmt.Sprintf("a message is over %d bytes", b.limits.line)))
		return
	case len(text) == 0:
		return
	}
	m, err := parse(text)
	if err != nil {
		code := codeInvalid
		if errors.Is(err, errSyntax) {
			code = codeParse
		}
		b.write(failure(idWithin(text), code, err.Error()))
		return
	}
	switch {
	case m.isReply():
		b.reply(ctx, m)
	case m.method == "initialize" && m.id != "":
		b.initialize(ctx, m)
	case len(m.calls()) > 0:
		b.begin(ctx, m)
	case m.method == "notifications/initialized":
		b.ready(ctx, m)
	case m.method == "notifications/cancelled":
		b.cancelled(ctx, m)
	default:
		b.notify(ctx, m)
	}
}

// write says m, one JSON value, to the program.
func (b *bridge) write(m []byte) {
	var text bytes.Buffer
	text.Grow(len(m) + 1)
	if err := json.Compact(&text, m); err != nil {
		return // what comes here was parsed
	}
	text.WriteByte('\n')
	b.writing.Lock()
	defer b.writing.Unlock()
	if _, err := b.out.Write(text.Bytes()); err != nil {
		b.stop(fmt.Errorf("bridge: the program reads no more: %w", err))
	}
}

// drain waits for the answers to calls that the program made before its input
// ended. What it has cancelled, and what only listens, has none to come.
func (b *bridge) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.limits.drain)
	defer cancel()
	for {
		b.mu.Lock()
		left, changed := false, b.changed
		for _, c := range b.calls {
			left = left || !c.endless && !c.quiet
		}
		b.mu.Unlock()
		if !left {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// leave ends the session at the server.
func (b *bridge) leave() {
	b.mu.Lock()
	s := b.session
	b.mu.Unlock()
	if s == nil || s.id == "" || s.isLost() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.limits.leave)
	defer cancel()
	if r, err := b.request(ctx, http.MethodDelete, s, nil, ""); err == nil {
		r.Body.Close()
	}
}

// join waits for what still runs, but not long: a write may be blocked.
func (b *bridge) join() {
	done := make(chan struct{})
	go func() {
		b.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(b.limits.leave):
	}
}
