package console_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Guarded by the relay's mu.
type fakePTY struct {
	info       protocol.PTYInfo
	epoch      protocol.Epoch
	log        []byte
	line       []byte
	input      []byte
	largest    int // of the input messages
	resizes    []string
	controller protocol.UserID
	term       uint64
	written    map[string]uint64 // sequences, by client
	deaf       bool              // input gets lost on its way
	mute       bool              // acknowledgements get lost on their way
	recording  string            // id
	shared     protocol.Share    // to whose programs it is open; empty: to none
	agent      protocol.AgentStateMessage
	started    []op.AgentStart
	turn       *protocol.AgentStoppedMessage // the last one
	before     protocol.UserID               // who had control before the agent
	requests   []protocol.UserID
	were       map[protocol.UserID]bool // controllers so far
	sockets    map[*fakeSocket]struct{}
}

// A newcomer gets a keyframe where there is more than this.
const replayed = 64 << 10

func (f *fakeRelay) attach(s *fakeSocket, p *fakePTY, since string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.controller == "" && p.info.CreatorID == protocol.UserID(s.user.id) && len(p.input) == 0 {
		p.hold(p.info.CreatorID)
	}
	p.sockets[s] = struct{}{}
	p.were[p.controller] = true
	s.send(p.state(s))
	offset, mode := 0, protocol.ModeResume
	if since != "" {
		at, err := protocol.ParsePosition(since)
		switch {
		case err != nil:
			f.faults = append(f.faults, err.Error())
		case at.Epoch != p.epoch || at.Offset > uint64(len(p.log)):
			offset, mode = len(p.log), protocol.ModeGap
		default:
			offset = int(at.Offset)
		}
	} else if len(p.log) > replayed {
		offset, mode = len(p.log), protocol.ModeKeyframe
	}
	var keyframe []byte
	if mode != protocol.ModeResume {
		keyframe = p.keyframe()
	}
	s.acked = uint64(offset)
	s.acks <- s.acked
	s.send(protocol.Attached{
		Epoch: p.epoch, Offset: uint64(offset), Head: uint64(len(p.log)),
		Cols: p.info.Cols, Rows: p.info.Rows, Mode: mode, KeyframeBytes: len(keyframe),
	})
	if keyframe != nil {
		s.out <- fakeFrame{data: keyframe}
	}
	if p.recording != "" {
		s.send(protocol.RecordingState{ID: p.recording})
	}
	if p.shared != "" && p.shared != protocol.ShareNone {
		s.send(protocol.SharedMessage{With: p.shared})
	}
	s.output(offset, bytes.Clone(p.log[offset:]))
	if p.info.Exited != nil {
		s.send(protocol.PTYClosed{ExitCode: p.info.Exited.Code, Signal: p.info.Exited.Signal, Offset: uint64(len(p.log))})
		s.out <- fakeFrame{code: 4004}
	}
	f.presence(p)
}

// hold makes user the controller, under a new term.
func (p *fakePTY) hold(user protocol.UserID) {
	p.controller = user
	p.term++
}

// keyframe is the last of the log, from a line's start on: all that programs
// print here are lines.
func (p *fakePTY) keyframe() []byte {
	tail := p.log[max(0, len(p.log)-16<<10):]
	if i := bytes.IndexByte(tail, '\n'); i >= 0 && len(tail) < len(p.log) {
		tail = tail[i+1:]
	}
	return append([]byte("\x18\x1bc"), tail...)
}

func (p *fakePTY) state(s *fakeSocket) protocol.ControlState {
	requests := p.requests
	if requests == nil {
		requests = []protocol.UserID{}
	}
	return protocol.ControlState{
		Controller: p.controller, Requests: requests, Term: p.term, AgentState: string(p.agent.AgentState), Agent: p.agent.Agent, LastTurn: p.turn,
		You: protocol.UserID(s.user.id), CanControl: slices.Contains(s.user.caps, protocol.CapControl),
	}
}

func (p *fakePTY) broadcast(m protocol.ServerMessage) {
	for s := range p.sockets {
		s.send(m)
	}
}

func (p *fakePTY) changed(m protocol.ServerMessage) {
	p.broadcast(m)
	for s := range p.sockets {
		s.send(p.state(s))
	}
}

func (f *fakeRelay) presence(p *fakePTY) {
	viewers := make(map[string]protocol.PresentViewer)
	for s := range p.sockets {
		v := viewers[s.user.id]
		v.UserID, v.Name = protocol.UserID(s.user.id), s.user.name
		v.CanControl = slices.Contains(s.user.caps, protocol.CapControl)
		v.Sockets++
		viewers[s.user.id] = v
	}
	list := make([]protocol.PresentViewer, 0, len(viewers))
	for _, id := range slices.Sorted(maps.Keys(viewers)) {
		list = append(list, viewers[id])
	}
	p.broadcast(protocol.Presence{Count: len(list), Viewers: list})
}

// output appends to the log and sends it.
func (f *fakeRelay) output(p *fakePTY, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.output(data)
}

func (p *fakePTY) output(data string) {
	if data == "" {
		return
	}
	offset := len(p.log)
	p.log = append(p.log, data...)
	for s := range p.sockets {
		s.output(offset, []byte(data))
	}
}

// skip appends to the log what nobody is sent, as if all were too slow.
func (f *fakeRelay) skip(p *fakePTY, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.log = append(p.log, data...)
	keyframe := p.keyframe()
	for s := range p.sockets {
		at := uint64(len(p.log))
		s.acked = at
		s.acks <- at
		s.send(protocol.Resync{Epoch: p.epoch, Offset: at, Head: at, Cols: p.info.Cols, Rows: p.info.Rows, KeyframeBytes: len(keyframe)})
		s.out <- fakeFrame{data: keyframe}
		s.send(p.state(s))
	}
}

// move sends everybody to another origin.
func (f *fakeRelay) move(p *fakePTY, origin string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range p.sockets {
		s.send(protocol.Moved{Origin: origin})
		s.out <- fakeFrame{code: 1012}
	}
}

func (f *fakeRelay) exit(p *fakePTY, code int, signal string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if signal != "" {
		code = -1
	}
	p.info.Exited = &protocol.Exited{Offset: uint64(len(p.log)), Code: code, Signal: signal}
	p.broadcast(protocol.PTYClosed{ExitCode: code, Signal: signal, Offset: uint64(len(p.log))})
	for s := range p.sockets {
		s.out <- fakeFrame{code: 4004}
	}
}

// wait tells viewers that the sandbox is gone, and back what turn-taking tells
// when it has come back.
func (f *fakeRelay) wait(p *fakePTY) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.broadcast(protocol.Waiting{Reason: protocol.WaitingSandbox})
}

func (f *fakeRelay) back(p *fakePTY) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range p.sockets {
		s.send(p.state(s))
	}
}

// cut drops every socket of p; while closed, nobody comes back.
func (f *fakeRelay) cut(p *fakePTY, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = closed
	for s := range p.sockets {
		s.drop(nil)
	}
}

func (f *fakeRelay) reopen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = false
}

func (f *fakeRelay) receive(s *fakeSocket, p *fakePTY, text bool, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	you := protocol.UserID(s.user.id)
	if !text {
		f.typed(s, p, data)
		return
	}
	m, err := protocol.DecodeClientMessage(data)
	if err != nil {
		f.faults = append(f.faults, fmt.Sprintf("frame %s: %v", data, err))
		return
	}
	switch m.Type {
	case protocol.ClientResize:
		p.were[p.controller] = true
		if !p.were[you] { // else it may have been under way when control went
			f.faults = append(f.faults, "resize by a viewer")
		}
		if p.controller != you {
			return
		}
		p.resizes = append(p.resizes, fmt.Sprintf("%dx%d", m.Cols, m.Rows))
		p.info.Cols, p.info.Rows = m.Cols, m.Rows
		p.broadcast(protocol.SizeChanged{Offset: uint64(len(p.log)), Cols: m.Cols, Rows: m.Rows})
	case protocol.ClientAck:
		if m.Offset > uint64(len(p.log)) {
			f.faults = append(f.faults, fmt.Sprintf("ack of %d, of %d", m.Offset, len(p.log)))
		}
		s.acked = max(s.acked, m.Offset) // one from before a resync may be under way
		s.acks <- s.acked
	case protocol.ClientRequestControl, protocol.ClientTakeControl:
		if p.controller == "" {
			p.hold(you)
			p.were[you] = true
			p.changed(protocol.ControlTaken{Controller: you, Term: p.term})
		} else if m.Type == protocol.ClientRequestControl && !slices.Contains(p.requests, you) {
			p.requests = append(p.requests, you)
			p.changed(protocol.ControlRequested{From: you, Requests: p.requests})
		}
	case protocol.ClientTakeBack:
		from := p.controller
		p.hold(you)
		p.were[you] = true
		p.changed(protocol.ControlGranted{From: from, To: you, Controller: you, Term: p.term, Reason: protocol.ReasonOwner})
	case protocol.ClientCancelRequest:
		p.requests = slices.DeleteFunc(p.requests, func(id protocol.UserID) bool { return id == you })
		p.changed(protocol.Presence{Count: 0, Viewers: []protocol.PresentViewer{}})
		f.presence(p)
	case protocol.ClientReauth:
		f.reauths = append(f.reauths, m.Grant)
		s.send(protocol.Reauthed{ExpiresAt: time.Now().Add(f.lifetime).Unix()})
	case protocol.ClientGrantControl:
		p.hold(m.To)
		p.were[m.To] = true
		p.requests = slices.DeleteFunc(p.requests, func(id protocol.UserID) bool { return id == m.To })
		p.changed(protocol.ControlGranted{From: you, To: m.To, Controller: m.To, Term: p.term})
	case protocol.ClientRevokeControl:
		p.controller = ""
		p.changed(protocol.ControlRevoked{From: you})
	}
}

// typed takes input as an agent does: under the current term, each sequence of a
// client once.
func (f *fakeRelay) typed(s *fakeSocket, p *fakePTY, data []byte) {
	in, err := protocol.DecodeBrowserInput(data)
	if err != nil {
		f.faults = append(f.faults, err.Error())
		return
	}
	p.largest = max(p.largest, len(in.Bytes))
	if you := protocol.UserID(s.user.id); p.controller == "" && in.Term == protocol.FreeTerm(p.term) && !p.deaf {
		p.hold(you)
		p.were[you] = true
		p.changed(protocol.ControlTaken{Controller: you, Term: p.term})
	}
	if in.Term == protocol.FreeTerm(p.term-1) {
		in.Term = p.term
	}
	switch {
	case p.deaf:
		return
	case in.Seq <= p.written[s.client]:
	case p.agent.AgentState == protocol.AgentRunning:
		s.send(protocol.InputDropped{Reason: protocol.RefusedAgentRunning, Seq: in.Seq})
		return
	case p.controller != protocol.UserID(s.user.id):
		s.send(protocol.InputDropped{Reason: protocol.RefusedNotController, Seq: in.Seq})
		return
	case in.Term != p.term:
		s.send(protocol.InputDropped{Reason: protocol.RefusedStaleTerm, Seq: in.Seq})
		return
	default:
		p.written[s.client] = in.Seq
		p.input = append(p.input, in.Bytes...)
		p.output(p.echo(in.Bytes))
	}
	if !p.mute {
		s.send(protocol.InputWritten{Seq: p.written[s.client]})
	}
}

// echo is the fake shell: it shows what is typed and multiplies.
func (p *fakePTY) echo(data []byte) string {
	if len(data) > 1024 { // a paste: not worth showing
		return ""
	}
	var out strings.Builder
	for _, c := range data {
		switch {
		case c == '\r':
			var a, b int
			out.WriteString("\r\n")
			if n, err := fmt.Sscanf(string(p.line), "echo $((%d*%d))", &a, &b); n == 2 && err == nil {
				fmt.Fprintf(&out, "%d\r\n", a*b)
			}
			out.WriteString("$ ")
			p.line = p.line[:0]
		case c >= ' ' && c != 0x7f:
			p.line = append(p.line, c)
			out.WriteByte(c)
		}
	}
	return out.String()
}
