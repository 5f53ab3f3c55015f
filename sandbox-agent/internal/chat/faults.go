package chat

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
)

// notFound is the answer for a conversation that isn't there, or isn't this
// session's.
func notFound(id protocol.ConversationID) *protocol.Error {
	return refusal(protocol.ChatSessionNotFound, string(id))
}

// refusal is an error with a code, and the text that the relay has for it too. It
// is about a conversation or, see [chatsocket.NewFault], something else.
func refusal(code protocol.ChatCode, about string) *protocol.Error {
	return chatsocket.NewFault(code, about).Error()
}

// fault is an error with a code of the chat socket (seed 002), and a text of its
// own.
func fault(code protocol.ChatCode, format string, args ...any) *protocol.Error {
	return protocol.ChatFault{Code: code, Text: fmt.Sprintf(format, args...)}.Error()
}

// diskError is what a caller hears of a disk that doesn't do.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return protocol.Errorf(protocol.KindNoSpace, "the disk of the sandbox is full")
	}
	return protocol.Fault(protocol.KindUnavailable, err)
}
