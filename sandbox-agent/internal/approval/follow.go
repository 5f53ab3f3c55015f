package approval

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// StreamKind implements [feature.Followed].
func (l *Log) StreamKind() protocol.StreamKind { return protocol.StreamApproval }

// Follow implements [feature.Followed]: the questions and decisions of a
// session, until it ends.
func (l *Log) Follow(grant *jws.Grant, raw json.RawMessage) (feature.Events, any, error) {
	var params protocol.ApprovalParams
	if err := json.Unmarshal(raw, &params); err != nil || !protocol.ValidID(params.SessionID) {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "malformed params")
	}
	if !grant.Allows(params.SessionID, "", protocol.CapApprove) {
		return nil, nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to answer approvals of this session")
	}
	s, opened, err := l.Subscribe(params.SessionID, params.Since)
	if err != nil {
		return nil, nil, err
	}
	return events{s}, opened, nil
}

// events are a subscription's events as messages.
type events struct{ *Subscription }

// Next implements [feature.Events].
func (e events) Next(ctx context.Context) (protocol.Message, error) {
	event, err := e.Subscription.Next(ctx)
	if errors.Is(err, ErrEnded) {
		err = io.EOF
	}
	return event, err
}
