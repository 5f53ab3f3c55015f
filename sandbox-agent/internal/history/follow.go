package history

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// StreamKind implements [feature.Followed].
func (h *History) StreamKind() protocol.StreamKind { return protocol.StreamChatNews }

// Follow implements [feature.Followed]: the news of a session's conversations.
func (h *History) Follow(grant *jws.Grant, raw json.RawMessage) (feature.Events, any, error) {
	var params protocol.ChatNewsParams
	if err := json.Unmarshal(raw, &params); err != nil || !protocol.ValidID(params.SessionID) {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "malformed params")
	}
	if !grant.Allows(params.SessionID, "", protocol.CapView) {
		return nil, nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session")
	}
	f, err := h.news.follow(params.SessionID)
	if err != nil {
		return nil, nil, err
	}
	h.openChat(params.SessionID)
	return f, protocol.ChatNewsOpened{}, nil
}
