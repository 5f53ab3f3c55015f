package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/terminalstream"
)

// approvals tells a relay what is asked and decided in a session, until its
// grant ends, the relay closes the stream, or the session is over. A relay that
// is slower than the log slides is cut off, and comes back with its position.
func (l *Link) approvals(ctx context.Context, in *tunnel.Incoming) error {
	var params protocol.ApprovalParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil || !protocol.ValidID(params.SessionID) {
		return in.Refuse(protocol.Errorf(protocol.KindInvalid, "malformed params"))
	}
	grant, err := l.terminals().Grant(ctx, in.Open.Grant)
	if err != nil {
		return in.Refuse(err)
	}
	if !grant.Allows(params.SessionID, "", protocol.CapApprove) {
		return in.Refuse(protocol.Errorf(protocol.KindForbidden, "the grant does not allow to answer approvals of this session"))
	}
	if l.Approvals == nil {
		return in.Refuse(protocol.Errorf(protocol.KindUnsupported, "this sandbox has no approvals"))
	}
	ctx, stop := l.Grants.Context(ctx, grant)
	defer stop()
	events, opened, err := l.Approvals.Subscribe(params.SessionID, params.Since)
	if err != nil {
		return in.Refuse(err)
	}
	defer events.Close()
	stream, err := terminalstream.Accept(in, opened)
	if err != nil {
		return err
	}
	l.watch.begin() // somebody may have to decide soon
	defer l.watch.end()
	return sendApprovals(ctx, stream, events)
}

// sendApprovals sends events until ctx, the log or the stream ends, and closes
// the stream.
func sendApprovals(ctx context.Context, stream *tunnel.Stream, events *approval.Subscription) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	defer cancel(nil)
	reading.Go(func() {
		frame, err := protocol.NewFrameReader(stream).Next()
		if err == nil {
			err = fmt.Errorf("link: %s on an approval stream", frame.Type)
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
		case errors.Is(cause, io.EOF), errors.Is(err, approval.ErrEnded):
			return nil
		case cause != nil:
			return cause
		default:
			return err
		}
	}
}
