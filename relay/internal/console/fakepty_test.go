package console_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
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
	requests   []protocol.UserID
	were       map[protocol.UserID]bool // controllers so far
	sockets    map[*fakeSocket]struct{}
}

type fakeSocket struct {
	user fakeUser
	out  chan fakeFrame
	drop context.CancelCauseFunc
}

type fakeFrame struct {
	text bool
	data []byte
}

func (f *fakeRelay) attach(s *fakeSocket, p *fakePTY, since string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.controller == "" && p.info.CreatorID == protocol.UserID(s.user.id) && len(p.input) == 0 {
		p.controller = p.info.CreatorID
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
			mode = protocol.ModeGap
		default:
			offset = int(at.Offset)
		}
	}
	s.send(protocol.Attached{
		Epoch: p.epoch, Offset: uint64(offset), Head: uint64(len(p.log)),
		Cols: p.info.Cols, Rows: p.info.Rows, Mode: mode,
	})
	if offset < len(p.log) {
		s.out <- fakeFrame{false, bytes.Clone(p.log[offset:])}
	}
	if p.info.Exited != nil {
		s.send(protocol.PTYClosed{ExitCode: p.info.Exited.Code, Signal: p.info.Exited.Signal, Offset: uint64(len(p.log))})
		s.out <- fakeFrame{true, nil}
	}
	f.presence(p)
}

func (p *fakePTY) state(s *fakeSocket) protocol.ControlState {
	requests := p.requests
	if requests == nil {
		requests = []protocol.UserID{}
	}
	return protocol.ControlState{
		Controller: p.controller, Requests: requests, AgentState: "stopped",
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
	p.log = append(p.log, data...)
	for s := range p.sockets {
		s.out <- fakeFrame{false, []byte(data)}
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
		s.out <- fakeFrame{true, nil}
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
		if p.controller != you {
			s.send(protocol.InputDropped{Reason: protocol.RefusedNotController})
			return
		}
		p.largest = max(p.largest, len(data))
		p.input = append(p.input, data...)
		p.output(p.echo(data))
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
	case protocol.ClientRequestControl, protocol.ClientTakeControl:
		if p.controller == "" {
			p.controller = you
			p.were[you] = true
			p.changed(protocol.ControlTaken{Controller: you})
		} else if m.Type == protocol.ClientRequestControl && !slices.Contains(p.requests, you) {
			p.requests = append(p.requests, you)
			p.changed(protocol.ControlRequested{From: you, Requests: p.requests})
		}
	case protocol.ClientCancelRequest:
		p.requests = slices.DeleteFunc(p.requests, func(id protocol.UserID) bool { return id == you })
		p.changed(protocol.Presence{Count: 0, Viewers: []protocol.PresentViewer{}})
		f.presence(p)
	case protocol.ClientReauth:
		f.reauths = append(f.reauths, m.Grant)
		s.send(protocol.Reauthed{ExpiresAt: time.Now().Add(f.lifetime).Unix()})
	case protocol.ClientGrantControl:
		p.controller = m.To
		p.were[m.To] = true
		p.requests = slices.DeleteFunc(p.requests, func(id protocol.UserID) bool { return id == m.To })
		p.changed(protocol.ControlGranted{From: you, To: m.To, Controller: m.To})
	case protocol.ClientRevokeControl:
		p.controller = ""
		p.changed(protocol.ControlRevoked{From: you})
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
