package chatapi

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/relay/internal/chathub"
)

// What a relay knows of a conversation counts before it counts that its sandbox
// can't be asked: an error of State comes last, where it says no more than that.

// maySend returns why no message can be sent in a conversation. busy: what is in
// the way may be the very message.
func maySend(state chathub.State, err error, id protocol.ConversationID) (fault protocol.ChatFault, refused, busy bool) {
	switch {
	case state.Unsupported:
		return chatsocket.NewFault(protocol.ChatUnsupportedProvider, state.Provider), true, false
	case state.Controller != "" && !state.Mine:
		return chatsocket.NewFault(protocol.ChatNotController, string(id)), true, true
	case state.Run == protocol.RunRunning || state.Run == protocol.RunAborting:
		return chatsocket.NewFault(protocol.ChatRunInProgress, string(id)), true, true
	case err != nil:
		return faultOf(err, id), true, false
	}
	return protocol.ChatFault{}, false, false
}

// mayAbort returns why a conversation's run can't be stopped by somebody who has
// the capability to or not, and owns the session or not.
func mayAbort(state chathub.State, err error, id protocol.ConversationID, allowed, owns bool) (fault protocol.ChatFault, refused bool) {
	switch {
	case protocol.KindOf(err) == protocol.KindNotFound:
		return chatsocket.NewFault(protocol.ChatNoActiveRun, string(id)), true
	case !allowed:
		return chatsocket.NewFault(protocol.ChatForbidden, string(id)), true
	case state.Run == protocol.RunIdle:
		return chatsocket.NewFault(protocol.ChatNoActiveRun, string(id)), true
	case state.Controller != "" && !state.Mine && !owns:
		return chatsocket.NewFault(protocol.ChatNotController, string(id)), true
	case err != nil:
		return faultOf(err, id), true
	}
	return protocol.ChatFault{}, false
}

// faultOf returns the fault for an error, which may carry one.
func faultOf(err error, id protocol.ConversationID) protocol.ChatFault {
	if fault, ok := chatsocket.ParseFault(err); ok {
		return fault
	}
	e := protocol.AsError(err)
	switch e.Kind {
	case protocol.KindNotFound, protocol.KindEnded:
		return chatsocket.NewFault(protocol.ChatSessionNotFound, string(id))
	case protocol.KindForbidden, protocol.KindUnauthenticated, protocol.KindExpired:
		return chatsocket.NewFault(protocol.ChatForbidden, string(id))
	case protocol.KindInvalid, protocol.KindTooLarge, protocol.KindUnsupported, protocol.KindConflict:
		return protocol.ChatFault{Code: protocol.ChatInternalError, Text: chatsocket.Sentence(e.Error())}
	case protocol.KindNoSpace:
		return protocol.ChatFault{Code: protocol.ChatUnavailable, Text: chatsocket.Sentence(e.Error())}
	case protocol.KindUnknown:
		return protocol.ChatFault{Code: protocol.ChatUnavailable, Text: "It isn't known whether this was done. What follows in the session shows it."}
	}
	return chatsocket.NewFault(protocol.ChatUnavailable, string(id))
}

// unsent returns why a message that went to the sandbox isn't sent.
func unsent(err error, id protocol.ConversationID) protocol.ChatFault {
	if protocol.KindOf(err) == protocol.KindExpired {
		return protocol.ChatFault{
			Code: protocol.ChatInternalError,
			Text: "This clientMessageId is too old to be sent again. Whether its message was sent, the session shows.",
		}
	}
	return faultOf(err, id)
}
