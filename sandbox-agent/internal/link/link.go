// Package link answers the streams that a relay opens: terminals, parts of
// their logs, commands, approvals and HTTP. Whoever asks, the grant or command in
// the stream is checked here again.
package link

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
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
	Approvals  *approval.Log  // nil: the sandbox asks for nothing
	Arrive     func() Execute // called for each command in the order in which they come
	Revision   string
	Log        *slog.Logger

	// Services serve further routes over HTTP. Register is called once, before
	// the first request, and with it Front of those that have it.
	Services []interface{ Register(*http.ServeMux) }

	commands sync.WaitGroup // those that run; they may outlive their tunnel
	watch    watch
	ends     grantEnds
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
	handler := l.handler()
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
			answer := func() error { return l.answer(ctx, in, handler) }
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

// answer serves one stream that is no command.
func (l *Link) answer(ctx context.Context, in *tunnel.Incoming, handler http.Handler) error {
	switch in.Open.Kind {
	case protocol.StreamTerminal:
		return l.terminal(ctx, in)
	case protocol.StreamRead:
		return l.read(ctx, in)
	case protocol.StreamApproval:
		return l.approvals(ctx, in)
	case protocol.StreamHTTP:
		return l.http(ctx, in, handler)
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

// grant verifies a grant and that it is for this sandbox.
func (l *Link) grant(ctx context.Context, token string) (*jws.Grant, error) {
	grant, err := l.Keys.Grant(ctx, token)
	if err != nil {
		return nil, err
	}
	if grant.Sandbox != l.Sandbox {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant is for another sandbox")
	}
	return grant, nil
}

// terminal attaches the relay to a PTY.
func (l *Link) terminal(ctx context.Context, in *tunnel.Incoming) error {
	var params protocol.TerminalParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		return in.Refuse(protocol.Errorf(protocol.KindInvalid, "malformed params"))
	}
	grant, err := l.grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	if !grant.Allows(params.SessionID, params.PTYID, protocol.CapView) { // before it learns what there is
		return in.Refuse(protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal"))
	}
	term, err := l.Host.Get(params.SessionID, params.PTYID)
	if err != nil {
		return in.Refuse(err)
	}
	attachment, opened, err := term.Attach(params)
	if err != nil {
		return in.Refuse(err)
	}
	if err := attachment.AddGrant(grant, 0); err != nil {
		attachment.Close()
		return in.Refuse(err)
	}
	stream, err := accept(in, opened)
	if err != nil {
		attachment.Close()
		return err
	}
	defer stream.Close()
	l.watch.begin()
	defer l.watch.end()
	s := &terminalStream{link: l, stream: stream, attachment: attachment}
	err = s.run(ctx)
	s.end(err)
	return err
}

// accept answers OPEN with result.
func accept(in *tunnel.Incoming, result any) (*tunnel.Stream, error) {
	body, err := json.Marshal(result)
	if err != nil {
		return nil, errors.Join(err, in.Refuse(err))
	}
	return in.Accept(protocol.Opened{Result: body})
}
