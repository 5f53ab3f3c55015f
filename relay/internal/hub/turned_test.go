package hub

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func turnAt(at int64, text string) protocol.AgentTurn {
	return protocol.AgentTurn{Agent: "claude-code", LastMessage: text, Reason: protocol.StopComplete, At: at}
}

// state returns the next control_state of a socket.
func (x *watcher) state() (m protocol.ControlState) {
	x.t.Helper()
	x.until(protocol.ServerControlState).decode(x.t, &m)
	return m
}

// TestTurnsAreTold: that a turn is over is told to everybody once, and who comes later
// sees the last one; what a tool server has is told as it changes.
func TestTurnsAreTold(t *testing.T) {
	first := turnAt(1, "before anybody watched")
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2), Turn: &first})
	x := w.join(alice, at(0))
	if m := x.state(); m.LastTurn == nil || m.LastTurn.LastMessage != first.LastMessage || m.LastTurn.Timestamp != 1 {
		t.Fatalf("%+v", m.LastTurn)
	}
	a := w.attached()
	stopped := func(at int64, text string) {
		t.Helper()
		var m protocol.AgentStoppedMessage
		x.until(protocol.ServerAgentStopped).decode(t, &m)
		if m.Timestamp != at || m.LastMessage != text || m.Agent != "claude-code" || m.Reason != protocol.StopComplete {
			t.Fatalf("%+v", m)
		}
	}
	a.say(turnAt(2, "a secret"), protocol.ToolsChanged{Old: 30, New: 38, At: 5})
	stopped(2, "a secret")
	var tools protocol.ToolCountChanged
	x.gets(protocol.ServerToolsChanged).decode(t, &tools)
	if tools != (protocol.ToolCountChanged{OldCount: 30, NewCount: 38, Timestamp: 5}) {
		t.Fatalf("%+v", tools)
	}
	a.say(turnAt(2, "a ******"))
	var masked protocol.ControlState
	x.gets(protocol.ServerControlState).decode(t, &masked)
	if masked.LastTurn.LastMessage != "a ******" {
		t.Fatalf("%+v", masked.LastTurn)
	}
	late := w.join(bob, at(0))
	if m := late.state(); m.LastTurn == nil || m.LastTurn.LastMessage != "a ******" {
		t.Fatalf("%+v", m.LastTurn)
	}

	// What ends while the sandbox is away is told when it is back.
	third := turnAt(3, "in the dark")
	w.opens(protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2), Turn: &third}, nil)
	a.stream.Close()
	stopped(3, "in the dark")
	a = w.attached()
	w.opens(protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2), Turn: &third}, nil)
	a.stream.Close()
	a = w.attached()
	a.say(protocol.ToolsChanged{Old: 1, New: 2, At: 6})
	for {
		it := x.next()
		if it.kind == protocol.ServerAgentStopped {
			t.Fatal("the same turn was told twice")
		}
		if it.kind == protocol.ServerToolsChanged {
			break
		}
	}
}
