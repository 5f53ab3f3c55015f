// Package link answers the streams that a relay opens: terminals, parts of
// their logs, commands, approvals and HTTP. Whoever asks, the grant or command in
// the stream is checked here again.
package link

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/terminalstream"
)

// maxStreams bounds the streams that are served at the same time.
const maxStreams = 1024

// Execute runs the signed command in token and returns its outcome.
type Execute func(ctx context.Context, token string) protocol.Result

// Link serves the streams of a sandbox's tunnels.
type Link struct {
	Sandbox    protocol.SandboxID
	Keys       *jws.Keys
	Host       *terminal.Host
	Recordings *recording.Store
	Grants     *lifetime.Grants // end the streams that live under one grant
	Arrive     func() Execute   // called for each command in the order in which they come
	Revision   string
	Log        *slog.Logger

	Followed []feature.Followed // each has streams of its own kind
	Joined   []feature.Joined   // the same
	// Services serve further routes over HTTP. Routes is called once, before
	// the first request, and with it Front of those that have it.
	Services []feature.Router

	// Sync answers requests that come without a grant: what they carry is sealed.
	// nil: none is taken.
	Sync http.Handler

	commands sync.WaitGroup // those that run; they may outlive their tunnel
	sealed   atomic.Int32   // streams of kind sync
	watch    watch
	routes   routes
}

// Serve answers streams until session or ctx ends. It returns when all of them
// are over.
func (l *Link) Serve(ctx context.Context, session *tunnel.Session) {
	l.serve(ctx, session, session.SetWatched)
}

// Wait waits until no command runs. Nothing may be served any more.
func (l *Link) Wait() { l.commands.Wait() }

func (l *Link) serve(ctx context.Context, session *tunnel.Session, setWatched func(bool)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.watch.join(setWatched)()
	by := &answers{l.terminals(), l.handler()}
	room := make(chan struct{}, maxStreams)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		in, err := session.Accept(ctx)
		if err != nil {
			cancel()
			return
		}
		select {
		case room <- struct{}{}:
			answer := func() error { return l.answer(ctx, in, by) }
			if in.Open.Kind == protocol.StreamCommand {
				execute := l.Arrive() // now, for goroutines keep no order
				answer = func() error { return l.command(ctx, in, execute) }
			}
			running.Go(func() {
				defer func() { <-room }()
				if err := answer(); err != nil && ctx.Err() == nil {
					l.Log.Debug("stream ended", "kind", in.Open.Kind, "err", err)
				}
			})
		default:
			in.Refuse(protocol.Errorf(protocol.KindTooMany, "over %d streams", maxStreams))
		}
	}
}

// answers is what serves the streams of one tunnel.
type answers struct {
	terminals *terminalstream.Server
	handler   http.Handler
}

// answer serves one stream that is no command.
func (l *Link) answer(ctx context.Context, in *tunnel.Incoming, by *answers) error {
	switch in.Open.Kind {
	case protocol.StreamTerminal:
		return by.terminals.Terminal(ctx, in)
	case protocol.StreamRead:
		return by.terminals.Read(ctx, in)
	case protocol.StreamHTTP:
		return l.http(ctx, in, by.handler)
	case protocol.StreamSync:
		return l.sync(ctx, in)
	}
	for _, j := range l.Joined {
		if j.JoinKind() == in.Open.Kind {
			return l.join(ctx, in, j)
		}
	}
	for _, f := range l.Followed {
		if f.StreamKind() == in.Open.Kind {
			return l.follow(ctx, in, f)
		}
	}
	return in.Refuse(protocol.Errorf(protocol.KindUnsupported, "a relay opens no %q streams", string(in.Open.Kind)))
}

// command runs a signed command and sends its outcome.
func (l *Link) command(ctx context.Context, in *tunnel.Incoming, execute Execute) error {
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return err
	}
	defer stream.Close()
	// A command that has begun is finished even when the tunnel dies, but the
	// next tunnel doesn't wait for it.
	done := make(chan protocol.Result, 1)
	traced := telemetry.Extract(ctx, in.Open.Traceparent)
	l.commands.Go(func() { done <- execute(traced, in.Open.Command) })
	select {
	case result := <-done:
		return protocol.Write(stream, result)
	case <-ctx.Done():
		return ctx.Err()
	}
}
