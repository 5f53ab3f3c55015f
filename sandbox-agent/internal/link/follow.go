package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/terminalstream"
)

// follow tells a relay what happens in a feature, until its grant ends, the relay
// closes the stream, or there is nothing more to tell.
func (l *Link) follow(ctx context.Context, in *tunnel.Incoming, followed feature.Followed) error {
	grant, err := l.terminals().Grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	ctx, stop := l.Grants.Context(ctx, grant)
	defer stop()
	events, opened, err := followed.Follow(grant, in.Open.Params)
	if err != nil {
		return in.Refuse(err)
	}
	defer events.Close()
	stream, err := terminalstream.Accept(in, opened)
	if err != nil {
		return err
	}
	l.watch.begin() // whoever follows may have to act soon
	defer l.watch.end()
	return send(ctx, stream, events)
}

// join lets a relay use a feature by a stream that goes both ways, until no valid
// grant remains, the relay closes the stream, or there is nothing more to tell.
func (l *Link) join(ctx context.Context, in *tunnel.Incoming, joined feature.Joined) error {
	server := l.terminals()
	grant, err := server.Grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	stream, opened, err := joined.Join(grant, in.Open.Params)
	if err != nil {
		return in.Refuse(err)
	}
	return server.Serve(ctx, in, grant, stream, opened)
}

// send sends events until ctx, the events or the stream end, and closes the
// stream.
func send(ctx context.Context, stream *tunnel.Stream, events feature.Events) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	defer cancel(nil)
	reading.Go(func() {
		frame, err := protocol.NewFrameReader(stream).Next()
		if err == nil {
			err = fmt.Errorf("link: %s on a stream of events", frame.Type)
		}
		cancel(err)
	})
	for {
		event, err := events.Next(ctx)
		if err == nil {
			err = protocol.Write(stream, event)
		}
		switch cause := context.Cause(ctx); {
		case err == nil:
		case errors.Is(cause, io.EOF), errors.Is(err, io.EOF):
			return nil
		case cause != nil:
			return cause
		default:
			return err
		}
	}
}
