package chat

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fairlead/fairlead/protocol"
)

// notFound is the answer for a conversation that isn't there, or isn't this
// session's.
func notFound(id protocol.ConversationID) *protocol.Error {
	return fault(protocol.ChatSessionNotFound, "Session %q was not found. Create it via POST /api/providers/sessions first.", id)
}

// fault is an error with a code of the chat socket (seed 002).
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
