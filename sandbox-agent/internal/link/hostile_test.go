package link

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/executor"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

var (
	attempts    = flag.Int("attempts", 1500, "what the hostile relay tries")
	hostileSeed = flag.Uint64("seed", 0, "of the hostile relay; 0: another each time")
)

// A tally counts what commands do.
type tally struct {
	terminal.Operator // what isn't tallied isn't asked for

	mu  sync.Mutex
	ran map[string]int // guarded by mu
}

func (c *tally) note(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran[what]++
	return nil
}

func (c *tally) Create(_ context.Context, _ protocol.SessionID, id protocol.PTYID, create op.PTYCreate) (protocol.PTYInfo, error) {
	return protocol.PTYInfo{ID: id}, c.note(create.Command)
}

func (c *tally) Close(protocol.SessionID, protocol.PTYID) error { return c.note("close") }

func (c *tally) Signal(protocol.SessionID, protocol.PTYID, string) error { return c.note("signal") }

func (c *tally) Resize(protocol.SessionID, protocol.PTYID, int, int) error { return c.note("resize") }

// A hostile relay has what passed through it, and the tunnel.
type hostile struct {
	*rig
	random   *rand.Rand
	pty      protocol.PTYID
	mayView  string             // a grant for the terminal, without control
	grants   []string           // that give no control of it
	ids      []protocol.GrantID // of grants
	commands []string           // signed for this sandbox
	others   []string           // tokens that are neither

	stream  *terminalStreamEnd
	tunnels int // that the agent had enough of
}

// terminalStreamEnd collects what a terminal stream brings.
type terminalStreamEnd struct {
	*tunnel.Stream
	over   chan struct{}
	leases []protocol.Lease // set before over is closed
}

// finish ends the stream once the agent has obeyed all that was written: a key
// that still waited to be read would be typed by whoever has control by then.
func (e *terminalStreamEnd) finish() {
	e.CloseWrite()
	<-e.over
	e.Close()
}

// TestHostileRelay has a relay cross what passed through it: commands, grants,
// leases and input, in a real tunnel. It types nothing, resizes nothing, takes
// no control, and runs what was signed once at most.
func TestHostileRelay(t *testing.T) {
	seed := *hostileSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d -attempts %d", seed, *attempts)
	h, ran := newHostile(t, rand.New(rand.NewPCG(seed, 0)))
	h.attack()
	h.stream.finish()

	ran.mu.Lock()
	defer ran.mu.Unlock()
	for what, times := range ran.ran {
		if times > 1 || !strings.HasPrefix(what, "command ") {
			t.Errorf("%q ran %d times", what, times)
		}
	}
	for _, lease := range h.stream.leases {
		if lease.Term != 0 || lease.Holder != "" {
			t.Errorf("somebody got control: %+v", lease)
		}
	}
	token, id := h.grant(alice, control)
	var owner *terminalEnd
	for owner == nil {
		h.connect()
		var err error
		if owner, err = h.openTerminal(h.pty, token); err != nil && !h.ended() {
			t.Fatal(err)
		}
	}
	if o := owner.opened; o.Lease.Revision != 0 || o.Cols != protocol.DefaultCols || o.Rows != protocol.DefaultRows {
		t.Errorf("opened %+v", o)
	}
	owner.output("up")
	leased := owner.propose(1, 0, alice, id)
	owner.send(protocol.Input{Term: leased.Lease.Term, Seq: 1, Client: "owner", Bytes: []byte("end")})
	owner.output("end")
	t.Logf("%d of %d commands ran, %d tunnels ended", len(ran.ran), len(h.commands), h.tunnels)
}

func newHostile(t *testing.T, random *rand.Rand) (*hostile, *tally) {
	t.Helper()
	h := &hostile{rig: newRig(t), random: random}
	ran := &tally{ran: make(map[string]int)}
	book, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"), time.Now)
	must(t, err)
	t.Cleanup(func() { book.Close() })
	run := &executor.Executor{Sandbox: sandbox, Keys: h.Keys, Ledger: book, Operations: terminal.Operations(ran), Now: time.Now, Log: h.Log}
	h.Arrive = func() Execute { return run.Arrive().Execute }
	h.pty = h.rig.pty()
	other := h.rig.pty()
	collect := func(user protocol.UserID, caps []protocol.Capability, change ...func(*jws.Grant)) string {
		token, id := h.grant(user, caps, change...)
		h.grants, h.ids = append(h.grants, token), append(h.ids, id)
		return token
	}
	h.mayView = collect(bob, view)
	collect(alice, control, func(g *jws.Grant) { g.PTYs = []string{string(other)} })
	collect(alice, control, func(g *jws.Grant) { g.Sandbox = "sb_2" })
	collect(alice, control, func(g *jws.Grant) { g.Session = "ses_2" })
	collect(alice, control, func(g *jws.Grant) { g.IssuedAt -= 3600; g.ExpiresAt -= 3600 })
	for i := range 20 {
		c := jws.Command{
			Audience: jws.AudienceAgent, CommandID: protocol.NewCommandID(), TraceID: "tr_1", IssuedAt: time.Now().UnixMilli(), TTLMs: 600_000,
			Target: protocol.CommandTarget{SandboxID: sandbox, SessionID: session, PTYID: h.pty},
			Op:     json.RawMessage(fmt.Sprintf(`{"kind":"pty.create","command":"command %d"}`, i)),
		}
		token, err := h.signer.SignCommand(c)
		must(t, err)
		h.commands = append(h.commands, token)
		c.Target.SandboxID, c.CommandID = "sb_2", protocol.NewCommandID()
		token, err = h.signer.SignCommand(c)
		must(t, err)
		h.others = append(h.others, token)
	}
	h.follow()
	return h, ran
}

// connect makes another tunnel when the agent has ended the last one: it takes
// only so many streams in a second.
func (h *hostile) connect() {
	select {
	case <-h.relay.Done():
	default:
		return
	}
	h.tunnels++
	agent, relay := tunneltest.Pair(h.t)
	served := make(chan struct{})
	go func() { // the test's end waits for it
		defer close(served)
		h.serve(context.Background(), agent, h.noteWatched)
	}()
	h.t.Cleanup(func() {
		relay.Close()
		<-served
	})
	h.relay = relay
}

// ended reports, of a stream that has failed, whether its tunnel is over as well,
// which this end may notice a little later.
func (h *hostile) ended() bool {
	select {
	case <-h.relay.Done():
		return true
	case <-time.After(patience):
		return false
	}
}

// follow attaches as a viewer, and reads on.
func (h *hostile) follow() {
	var stream *tunnel.Stream
	for stream == nil {
		h.connect()
		var err error
		stream, _, err = h.relay.Open(context.Background(), protocol.TerminalLane(h.pty), protocol.Open{Kind: protocol.StreamTerminal, Grant: h.mayView, Params: h.params()})
		if err != nil && !h.ended() {
			h.t.Fatal(err)
		}
	}
	end := &terminalStreamEnd{Stream: stream, over: make(chan struct{})}
	if h.stream != nil {
		h.stream.finish()
		end.leases = h.stream.leases
	}
	h.stream = end
	go func() { // its end is waited for through over
		defer close(end.over)
		frames := protocol.NewFrameReader(stream)
		for {
			frame, err := frames.Next()
			if err != nil {
				return
			}
			m, err := protocol.Decode(frame)
			if err != nil {
				return
			}
			if m, ok := m.(protocol.Leased); ok {
				end.leases = append(end.leases, m.Lease)
			}
		}
	}()
}

func (h *hostile) attack() {
	for i := range *attempts {
		var err error
		switch h.random.IntN(8) {
		case 0, 1:
			h.try(protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand, Command: h.token(), Grant: h.token()})
		case 2:
			h.try(protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal, Grant: h.bad(), Command: h.token(), Params: h.params()})
		case 3:
			err = protocol.Write(h.stream, protocol.GrantAdd{Grant: h.bad()})
		case 4:
			err = protocol.Write(h.stream, protocol.LeaseProposal{ID: uint64(i + 1), ExpectRevision: h.random.Uint64N(3), Next: protocol.LeaseNext{
				Holder: h.user(), GrantID: h.ids[h.random.IntN(len(h.ids))],
			}})
		case 5:
			err = protocol.Write(h.stream, protocol.Resize{Term: h.random.Uint64N(3), Cols: 100 + h.random.IntN(100), Rows: 50})
		case 6:
			err = protocol.Write(h.stream, protocol.Input{Term: h.random.Uint64N(3), Seq: h.random.Uint64N(100), Client: string(h.user()), Bytes: []byte("typed")})
		case 7:
			err = protocol.Write(h.stream, protocol.Holder{User: h.user(), Sockets: h.random.IntN(3)})
		}
		if err != nil { // a stream that is abused may end
			h.follow()
		}
	}
}

func (h *hostile) user() protocol.UserID {
	return []protocol.UserID{alice, bob, "usr_carol"}[h.random.IntN(3)]
}

func (h *hostile) params() json.RawMessage {
	params, err := json.Marshal(protocol.TerminalParams{SessionID: session, PTYID: h.pty})
	must(h.t, err)
	return params
}

// try opens a stream and waits for its end.
func (h *hostile) try(lane protocol.Lane, open protocol.Open) {
	stream, _, err := h.relay.Open(context.Background(), lane, open)
	if err != nil {
		h.connect()
		return
	}
	defer stream.Close()
	if open.Kind == protocol.StreamTerminal {
		h.t.Errorf("a terminal was opened with %q", open.Grant)
		return
	}
	if _, err := protocol.NewFrameReader(stream).Next(); err != nil && !h.ended() {
		h.t.Errorf("no RESULT: %v", err)
	}
}

// token returns something that was signed, perhaps changed since.
func (h *hostile) token() string {
	all := [][]string{h.commands, h.commands, h.others, h.grants}[h.random.IntN(4)]
	token := all[h.random.IntN(len(all))]
	if h.random.IntN(2) == 0 {
		return h.spoil(token)
	}
	return token
}

// bad returns what gives nothing on the terminal: no grant for it, or no grant.
func (h *hostile) bad() string {
	switch h.random.IntN(3) {
	case 0:
		return h.grants[1+h.random.IntN(len(h.grants)-1)]
	case 1:
		return h.commands[h.random.IntN(len(h.commands))]
	}
	return h.spoil(h.mayView)
}

// spoil changes token so that its signature is wrong.
func (h *hostile) spoil(token string) string {
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(h.t, err)
	switch h.random.IntN(3) {
	case 0:
		payload[h.random.IntN(len(payload))] ^= 1 << h.random.IntN(8)
	case 1:
		payload = bytes.Replace(payload, []byte(`"view"`), []byte(`"view","control"`), 1)
		payload = append(bytes.Replace(payload, []byte("sb_2"), []byte("sb_1"), 1), ' ')
	case 2:
		parts[2] = strings.Split(h.others[h.random.IntN(len(h.others))], ".")[2]
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(payload)
	return strings.Join(parts, ".")
}
