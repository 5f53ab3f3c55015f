package chatapi

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/chathub"
)

// TestKnownComesFirst: what the relay knows of a conversation is told though its
// sandbox is away, and that it is away only where nothing else is in the way.
func TestKnownComesFirst(t *testing.T) {
	away := protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
	missing := protocol.Errorf(protocol.KindNotFound, "no such conversation")
	free := chathub.State{Provider: "claude", Run: protocol.RunIdle}
	with := func(change func(*chathub.State)) chathub.State {
		s := free
		change(&s)
		return s
	}
	running := with(func(s *chathub.State) { s.Run = protocol.RunRunning })
	held := with(func(s *chathub.State) { s.Run, s.Controller = protocol.RunAborting, "usr_bob" })
	mine := with(func(s *chathub.State) { s.Run, s.Controller, s.Mine = protocol.RunAborting, "usr_bob", true })
	unsupported := with(func(s *chathub.State) { s.Unsupported, s.Controller = true, "usr_bob" })
	for name, tt := range map[string]struct {
		state       chathub.State
		err         error
		send, abort protocol.ChatCode
	}{
		"idle":                   {free, nil, "", "NO_ACTIVE_RUN"},
		"idle, away":             {free, away, "UNAVAILABLE", "NO_ACTIVE_RUN"},
		"runs":                   {running, nil, "RUN_IN_PROGRESS", ""},
		"runs, away":             {running, away, "RUN_IN_PROGRESS", "UNAVAILABLE"},
		"somebody else's, away":  {held, away, "NOT_CONTROLLER", "NOT_CONTROLLER"},
		"one's own, away":        {mine, away, "RUN_IN_PROGRESS", "UNAVAILABLE"},
		"no such provider, away": {unsupported, away, "UNSUPPORTED_PROVIDER", "NO_ACTIVE_RUN"},
		"nothing known, away":    {chathub.State{}, away, "UNAVAILABLE", "UNAVAILABLE"},
		"nothing known":          {chathub.State{}, nil, "", ""}, // its client has left
		"not there":              {chathub.State{}, missing, "SESSION_NOT_FOUND", "NO_ACTIVE_RUN"},
	} {
		if fault, refused, _ := maySend(tt.state, tt.err, conv); fault.Code != tt.send || refused != (tt.send != "") {
			t.Errorf("%s: a message: %q", name, fault.Code)
		}
		if fault, refused := mayAbort(tt.state, tt.err, conv, true, false); fault.Code != tt.abort || refused != (tt.abort != "") {
			t.Errorf("%s: an abort: %q", name, fault.Code)
		}
	}
	if fault := unsent(protocol.Fault(protocol.KindExpired, nil), conv); fault.Code != "INTERNAL_ERROR" {
		t.Errorf("an old name: %q", fault.Code) // it isn't forbidden, and to wait doesn't help
	}
	if fault, _ := mayAbort(held, away, conv, true, true); fault.Code != "UNAVAILABLE" {
		t.Errorf("the owner's abort: %q", fault.Code)
	}
	if fault, _ := mayAbort(free, away, conv, false, true); fault.Code != "FORBIDDEN" {
		t.Errorf("without the capability: %q", fault.Code)
	}
}
