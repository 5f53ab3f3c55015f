// Package link answers the streams that a relay opens: terminals, parts of
// their logs, commands and HTTP. Whoever asks, the grant or command in the stream is checked here again.
package link

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
)

// maxStreams bounds the streams that are served at the same time.
const maxStreams = 1024

// Link serves the streams of a sandbox's tunnels.
type Link struct {
	Sandbox    protocol.SandboxID
	Keys       *jws.Keys
	Host       *terminal.Host
	Recordings *recording.Store
	Execute    func(ctx context.Context, token string) protocol.Result
	Revision   string
	Now        func() time.Time
	Log        *slog.Logger

	commands sync.WaitGroup // those that run; they may outlive their tunnel
	watch    watch
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
			running.Go(func() {
				defer func() { <-room }()
				l.answer(ctx, in, handler)
			})
		default:
			in.Refuse(protocol.Errorf(protocol.KindTooMany, "over %d streams", maxStreams))
		}
	}
}

// answer serves one stream.
func (l *Link) answer(ctx context.Context, in *tunnel.Incoming, handler http.Handler) {
	var err error
	switch in.Open.Kind {
	case protocol.StreamCommand:
		err = l.command(ctx, in)
	case protocol.StreamTerminal:
		err = l.terminal(ctx, in)
	case protocol.StreamRead:
		err = l.read(ctx, in)
	case protocol.StreamHTTP:
		err = l.http(ctx, in, handler)
	default:
		err = in.Refuse(protocol.Errorf(protocol.KindUnsupported, "a relay opens no %q streams", string(in.Open.Kind)))
	}
	if err != nil && ctx.Err() == nil {
		l.Log.Debug("stream ended", "kind", in.Open.Kind, "err", err)
	}
}

// command runs a signed command and sends its outcome.
func (l *Link) command(ctx context.Context, in *tunnel.Incoming) error {
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return err
	}
	defer stream.Close()
	// A command that has begun is finished even when the tunnel dies, but the
	// next tunnel doesn't wait for it.
	done := make(chan protocol.Result, 1)
	l.commands.Go(func() { done <- l.Execute(ctx, in.Open.Command) })
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
	grants := newGrantList(l, params)
	if _, err := grants.add(ctx, in.Open.Grant); err != nil {
		return in.Refuse(err)
	}
	term, err := l.Host.Get(params.SessionID, params.PTYID)
	if err != nil {
		return in.Refuse(err)
	}
	attachment, opened, err := term.Attach(params)
	if err != nil {
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
	s := &terminalStream{link: l, stream: stream, attachment: attachment, grants: grants}
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
