package terminalstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fake is a terminal, its one attachment and a part of its log.
type fake struct {
	next   chan protocol.Message // what Next returns; closed: io.EOF
	obeyed chan protocol.Message
	ended  chan error
	grants []*jws.Grant
	parts  []protocol.Message

	attaching func() // called by Attach; nil: nothing happens then
}

func (f *fake) Attach(protocol.TerminalParams) (Attachment, protocol.TerminalOpened, error) {
	if f.attaching != nil {
		f.attaching()
	}
	return f, protocol.TerminalOpened{Epoch: 7}, nil
}

func (f *fake) Read(protocol.ReadParams) (Reading, protocol.ReadOpened, error) {
	return parts{f}, protocol.ReadOpened{From: 1, To: 3}, nil
}

type parts struct{ *fake }

func (p parts) Next() (protocol.Message, error) {
	if len(p.parts) == 0 {
		return nil, io.EOF
	}
	m := p.parts[0]
	p.parts = p.parts[1:]
	p.fake.parts = p.parts
	return m, nil
}

func (f *fake) Next(ctx context.Context) (protocol.Message, error) {
	select {
	case m, ok := <-f.next:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fake) Poll() (protocol.Message, error) {
	select {
	case m, ok := <-f.next:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	default:
		return nil, nil
	}
}

func (f *fake) Obey(m protocol.Message) error {
	if m.FrameType() == protocol.FrameExited {
		return errForbidden
	}
	f.obeyed <- m
	return nil
}

func (f *fake) AddGrant(g *jws.Grant, handle uint64) error {
	if handle == 13 {
		return errForbidden
	}
	f.grants = append(f.grants, g)
	return nil
}

func (f *fake) Post(m protocol.Message) { f.next <- m }
func (f *fake) End(why error)           { f.ended <- why }

var errForbidden = protocol.Errorf(protocol.KindForbidden, "not that")

// TestSendTogether: messages that are there at the same time go by one write, up to
// its limit, and an end comes after them.
func TestSendTogether(t *testing.T) {
	f := &fake{next: make(chan protocol.Message, 8)}
	large := protocol.Data{Offset: 1, Bytes: make([]byte, protocol.MaxStreamWrite/2)}
	for _, m := range []protocol.Message{protocol.Data{Bytes: []byte("a")}, protocol.InputAck{Seq: 1, Client: "c"}, large, protocol.InputAck{Seq: 2, Client: "c"}} {
		f.next <- m
	}
	close(f.next)
	var w writes
	if err := send(t.Context(), &w, f); !errors.Is(err, io.EOF) {
		t.Errorf("ends with %v", err)
	}
	if len(w) != 2 || len(w[0]) < len(large.Bytes) || len(w[1]) > 100 {
		t.Errorf("%d writes", len(w))
	}
	frames := protocol.NewFrameReader(bytes.NewReader(bytes.Join(w, nil)))
	for _, want := range []protocol.FrameType{protocol.FrameData, protocol.FrameInputAck, protocol.FrameData, protocol.FrameInputAck} {
		if frame, err := frames.Next(); err != nil || frame.Type != want {
			t.Errorf("%v, %v; want %v", frame.Type, err, want)
		}
	}
}

// writes are what was written by each call.
type writes [][]byte

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, bytes.Clone(p))
	return len(p), nil
}

// A rig is a server at one end of a tunnel in memory.
type rig struct {
	*fake
	t      *testing.T
	signer *jws.Signer
	relay  *tunnel.Session
	agent  *tunnel.Session
	watch  chan int
}

func newRig(t *testing.T) *rig {
	signer, err := jws.GenerateSigner()
	must(t, err)
	set, err := jws.MarshalKeySet(signer)
	must(t, err)
	keys, err := jws.ParseKeySet(set)
	must(t, err)
	r := &rig{t: t, signer: signer, watch: make(chan int, 8), fake: &fake{
		next: make(chan protocol.Message, 8), obeyed: make(chan protocol.Message, 8), ended: make(chan error, 1),
	}}
	s := &Server{
		Sandbox: "sb_1", Keys: jws.NewKeys(keys, jws.KeysOptions{}),
		Find: func(_ protocol.SessionID, pty protocol.PTYID) (Terminal, error) {
			if pty != "pty_1" {
				return nil, protocol.Errorf(protocol.KindNotFound, "no such terminal")
			}
			return r.fake, nil
		},
		Watch: func() func() {
			r.watch <- 1
			return func() { r.watch <- -1 }
		},
	}
	r.agent, r.relay = tunneltest.Pair(t)
	served := make(chan struct{})
	go func() { // the test's end waits for it
		defer close(served)
		for {
			in, err := r.agent.Accept(context.Background())
			if err != nil {
				return
			}
			if in.Open.Kind == protocol.StreamRead {
				_ = s.Read(context.Background(), in)
			} else {
				_ = s.Terminal(context.Background(), in)
			}
		}
	}()
	t.Cleanup(func() { r.relay.Close(); <-served })
	return r
}

func (r *rig) grant(change func(*jws.Grant)) string {
	r.t.Helper()
	now := time.Now()
	g := jws.Grant{
		Issuer: jws.Issuer, Audience: jws.AudienceFairlead, Subject: "usr_1", Dashboard: "dash_1", Sandbox: "sb_1",
		Session: "ses_1", PTYs: []string{jws.AllPTYs}, Caps: []protocol.Capability{protocol.CapView},
		IssuedAt: now.Unix(), ExpiresAt: now.Add(5 * time.Minute).Unix(), ID: protocol.NewGrantID(),
	}
	change(&g)
	token, err := r.signer.SignGrant(g)
	must(r.t, err)
	return token
}

func (r *rig) good() string { return r.grant(func(*jws.Grant) {}) }

func (r *rig) open(kind protocol.StreamKind, token, params string) (*tunnel.Stream, protocol.Opened, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return r.relay.Open(ctx, protocol.LaneTerminal0, protocol.Open{Kind: kind, Grant: token, Params: json.RawMessage(params)})
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}

const there = `{"session_id":"ses_1","pty_id":"pty_1"}`

// Both kinds of streams are refused alike, and to who may not view a terminal it
// isn't told whether there is one.
func TestRefused(t *testing.T) {
	r := newRig(t)
	for _, kind := range []protocol.StreamKind{protocol.StreamTerminal, protocol.StreamRead} {
		for name, test := range map[string]struct {
			token, params string
			want          protocol.Kind
		}{
			"malformed params":   {r.good(), `[]`, protocol.KindInvalid},
			"no grant":           {"", there, protocol.KindUnauthenticated},
			"another sandbox":    {r.grant(func(g *jws.Grant) { g.Sandbox = "sb_2" }), there, protocol.KindForbidden},
			"another session":    {r.grant(func(g *jws.Grant) { g.Session = "ses_2" }), `{"session_id":"ses_1","pty_id":"pty_2"}`, protocol.KindForbidden},
			"no such terminal":   {r.good(), `{"session_id":"ses_1","pty_id":"pty_2"}`, protocol.KindNotFound},
			"a grant to do less": {r.grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapApprove} }), there, protocol.KindForbidden},
		} {
			if _, _, err := r.open(kind, test.token, test.params); err == nil || protocol.KindOf(err) != test.want {
				t.Errorf("%s, %s: %v, want %v", kind, name, err, test.want)
			}
		}
	}
	if len(r.watch) != 0 {
		t.Error("a stream that was refused counts as watched")
	}
}

func TestFramesGoBothWays(t *testing.T) {
	r := newRig(t)
	stream, opened, err := r.open(protocol.StreamTerminal, r.good(), there)
	must(t, err)
	var result protocol.TerminalOpened
	if must(t, json.Unmarshal(opened.Result, &result)); result.Epoch != 7 {
		t.Errorf("opened %+v", result)
	}
	frames := protocol.NewFrameReader(stream)
	next := func() protocol.Message {
		t.Helper()
		frame, err := frames.Next()
		must(t, err)
		m, err := protocol.Decode(frame)
		must(t, err)
		return m
	}
	r.next <- protocol.Data{Offset: 1, Bytes: []byte("x")}
	if m, ok := next().(protocol.Data); !ok || string(m.Bytes) != "x" {
		t.Errorf("got %+v", m)
	}
	must(t, protocol.Write(stream, protocol.WantKeyframe{History: true}))
	if m, ok := receive(t, r.obeyed).(protocol.WantKeyframe); !ok || !m.History {
		t.Errorf("obeyed %+v", m)
	}
	for handle, refused := range map[uint64]bool{5: false, 13: true} {
		must(t, protocol.Write(stream, protocol.GrantAdd{Handle: handle, Grant: r.good()}))
		if m, ok := next().(protocol.Granted); !ok || m.Handle != handle || (m.Refused != "") != refused || m.GrantID == "" {
			t.Errorf("a grant of %d: %+v", handle, m)
		}
	}
	must(t, protocol.Write(stream, protocol.GrantAdd{Handle: 6, Grant: "nonsense"}))
	if m, ok := next().(protocol.Granted); !ok || m.Refused == "" {
		t.Errorf("no grant at all: %+v", m)
	}
	close(r.next)
	if why := receive(t, r.ended); why != nil {
		t.Errorf("after the last message it ended with %v", why)
	}
	if receive(t, r.watch) != 1 || receive(t, r.watch) != -1 {
		t.Error("watched otherwise than from the stream's beginning to its end")
	}
}

func TestWhyItEnds(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(r *rig, stream *tunnel.Stream)
		want func(error) bool
	}{
		"the relay closes":          {func(_ *rig, s *tunnel.Stream) { s.Close() }, func(err error) bool { return errors.Is(err, io.EOF) }},
		"the tunnel is lost":        {func(r *rig, _ *tunnel.Stream) { r.relay.Close() }, func(err error) bool { return err != nil && !errors.Is(err, io.EOF) }},
		"a frame that isn't obeyed": {func(r *rig, s *tunnel.Stream) { must(r.t, protocol.Write(s, protocol.Exited{})) }, func(err error) bool { return errors.Is(err, errForbidden) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			stream, _, err := r.open(protocol.StreamTerminal, r.good(), there)
			must(t, err)
			test.do(r, stream)
			if why := receive(t, r.ended); !test.want(why) {
				t.Errorf("ended with %v", why)
			}
		})
	}
}

// TestLostWhileOpening: a tunnel that is lost before the relay has its answer is
// lost all the same, and its viewers are coming back.
func TestLostWhileOpening(t *testing.T) {
	r := newRig(t)
	r.attaching = func() {
		r.relay.Close()
		<-r.agent.Done()
	}
	if _, _, err := r.open(protocol.StreamTerminal, r.good(), there); err == nil {
		t.Error("the terminal is open")
	}
	if why := receive(t, r.ended); why == nil || errors.Is(why, io.EOF) {
		t.Errorf("ended with %v", why)
	}
}

func TestRead(t *testing.T) {
	r := newRig(t)
	r.parts = []protocol.Message{protocol.Data{Offset: 1, Bytes: []byte("a")}, protocol.Data{Offset: 2, Bytes: []byte("b")}}
	stream, opened, err := r.open(protocol.StreamRead, r.good(), there)
	must(t, err)
	var result protocol.ReadOpened
	if must(t, json.Unmarshal(opened.Result, &result)); result.To != 3 {
		t.Errorf("opened %+v", result)
	}
	frames := protocol.NewFrameReader(stream)
	for _, want := range "ab" {
		frame, err := frames.Next()
		must(t, err)
		m, err := protocol.Decode(frame)
		must(t, err)
		if data, ok := m.(protocol.Data); !ok || string(data.Bytes) != string(want) {
			t.Errorf("got %+v, want %c", m, want)
		}
	}
	if _, err := frames.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the part: %v", err)
	}
}
