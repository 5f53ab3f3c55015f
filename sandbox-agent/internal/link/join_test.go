package link

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// A room is joined by relays, and answers what they say.
type room struct{ ended chan error }

func (r room) JoinKind() protocol.StreamKind { return protocol.StreamChat }

func (r room) Join(grant *jws.Grant, params json.RawMessage) (feature.Stream, any, error) {
	if !grant.Allows(session, "", protocol.CapView) {
		return nil, nil, protocol.Errorf(protocol.KindForbidden, "not yours")
	}
	return &joined{room: r, said: make(chan protocol.Message, 8)}, protocol.ChatOpened{FirstSeq: 7}, nil
}

type joined struct {
	room
	said chan protocol.Message
}

func (j *joined) Next(ctx context.Context) (protocol.Message, error) {
	select {
	case m := <-j.said:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (j *joined) Obey(m protocol.Message) error {
	if m, ok := m.(protocol.LeaseProposal); ok {
		j.said <- protocol.Leased{ID: m.ID, Lease: protocol.Lease{State: protocol.LeaseFree}}
		return nil
	}
	return errors.New("not on this stream")
}

func (j *joined) AddGrant(g *jws.Grant, handle uint64) error {
	if handle == 13 {
		return protocol.Errorf(protocol.KindTooMany, "enough")
	}
	return nil
}

func (j *joined) Post(m protocol.Message) { j.said <- m }
func (j *joined) End(why error)           { j.ended <- why }

// TestJoin: a relay uses a feature by a stream that goes both ways, whose grants
// are verified here, and which ends however either side wants.
func TestJoin(t *testing.T) {
	r := newRig(t)
	hall := room{make(chan error, 1)}
	r.Joined = []feature.Joined{hall} // nothing was opened yet
	open := func(token string) (*terminalEnd, error) {
		stream, answer, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamChat, Grant: token, Params: []byte(`{}`)})
		if err != nil {
			return nil, err
		}
		var opened protocol.ChatOpened
		must(t, json.Unmarshal(answer.Result, &opened))
		if opened.FirstSeq != 7 {
			t.Errorf("%+v", opened)
		}
		return &terminalEnd{t: t, stream: stream, frames: protocol.NewFrameReader(stream)}, nil
	}
	token, _ := r.grant(alice, control)
	e, err := open(token)
	must(t, err)
	e.send(protocol.LeaseProposal{ID: 3})
	if m := next[protocol.Leased](e); m.ID != 3 {
		t.Errorf("%+v", m)
	}
	another, id := r.grant(bob, control)
	e.send(protocol.GrantAdd{Handle: 12, Grant: another})
	if m := next[protocol.Granted](e); m.Handle != 12 || m.GrantID != id || m.Refused != "" {
		t.Errorf("%+v", m)
	}
	for handle, token := range map[uint64]string{13: another, 14: "a.b.c"} {
		e.send(protocol.GrantAdd{Handle: handle, Grant: token})
		if m := next[protocol.Granted](e); m.Handle != handle || m.Refused == "" {
			t.Errorf("%+v", m)
		}
	}
	must(t, e.stream.Close())
	if err := <-hall.ended; !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	e, err = open(token)
	must(t, err)
	e.send(protocol.WantKeyframe{})
	e.ended()
	if err := <-hall.ended; err == nil {
		t.Error("it obeyed")
	}
	foreign, _ := r.grant(alice, control, func(g *jws.Grant) { g.Session = "ses_2" })
	_, err = open(foreign)
	wantKind(t, err, protocol.KindForbidden)
	_, err = open("a.b.c")
	wantKind(t, err, protocol.KindUnauthenticated)
}
