package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A viewer is a relay's stream that a test reads.
type viewer struct {
	t      testing.TB
	stream interface {
		Next(context.Context) (protocol.Message, error)
		Obey(protocol.Message) error
		AddGrant(*jws.Grant, uint64) error
		End(error)
	}
	opened protocol.ChatOpened
	state  protocol.ChatState // the latest
	lease  protocol.Lease     // the latest
	partly []byte
	last   uint64
}

func (r *rig) view(user protocol.UserID, params protocol.ChatParams, caps ...protocol.Capability) *viewer {
	r.t.Helper()
	params.SessionID, params.ConversationID = session, r.id
	raw, err := json.Marshal(params)
	check(r.t, err)
	g := grant(user, caps...)
	stream, opened, err := r.Join(g, raw)
	check(r.t, err)
	check(r.t, stream.AddGrant(g, 0))
	o := opened.(protocol.ChatOpened)
	v := &viewer{t: r.t, stream: stream, opened: o, state: o.State, lease: o.Lease, last: o.From - 1}
	r.t.Cleanup(func() { stream.End(io.EOF) })
	return v
}

// message returns the next message that is no state or lease, which it notes.
func (v *viewer) message() protocol.Message {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		m, err := v.stream.Next(ctx)
		if err != nil {
			v.t.Fatal(err)
		}
		switch m := m.(type) {
		case protocol.ChatState:
			v.state = m
		case protocol.Leased:
			v.lease = m.Lease
		default:
			return m
		}
	}
}

// event returns the next event, whose kind must be kind.
func (v *viewer) event(kind protocol.ChatKind) (e protocol.ChatEvent) {
	v.t.Helper()
	var text bytes.Buffer
	for {
		m, ok := v.message().(protocol.Chat)
		if !ok {
			v.t.Fatalf("%#v, want %s", m, kind)
		}
		text.Write(m.Bytes)
		if m.Left == 0 {
			check(v.t, json.Unmarshal(text.Bytes(), &e))
			if e.Seq != m.Seq || e.Seq <= v.last {
				v.t.Fatalf("event %d behind %d: %s", e.Seq, v.last, text.Bytes())
			}
			v.last = e.Seq
			break
		}
	}
	if e.Kind != kind {
		v.t.Fatalf("%s, want %s", text.Bytes(), kind)
	}
	return e
}

// completes reads a complete, before which the state was idle.
func (v *viewer) completes(exit int, aborted bool) {
	v.t.Helper()
	e := v.event(protocol.ChatComplete)
	if *e.ExitCode != exit || *e.Aborted != aborted || *e.Success != (exit == 0 && !aborted) || e.ActualSessionID != e.SessionID || e.CommandID == "" {
		v.t.Errorf("complete: exit %d, aborted %t, success %t", *e.ExitCode, *e.Aborted, *e.Success)
	}
	if v.state.Run != protocol.RunIdle {
		v.t.Errorf("complete while %s", v.state.Run)
	}
}

// fails reads the end of a run that has failed, and why it has.
func (v *viewer) fails(why string) {
	v.t.Helper()
	if e := v.event(protocol.ChatError); !strings.Contains(*e.Content, why) {
		v.t.Errorf("%q, want %q", *e.Content, why)
	}
	v.completes(1, false)
}
