package hub

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// A Viewer is one socket joined to a hub: its identity and rights, and parts
// that each have their own owner.
type Viewer struct {
	// Static after construction.
	id      turn.SocketID
	name    string
	user    protocol.UserID
	pacer   string    // its id for the agent as a pace-setter
	follows bool      // it never sets the terminal's size
	counts  bool      // it speaks terminal.v2: acknowledges output, numbers input
	asked   time.Time // when its request came
	hub     *Hub

	// Owned by the hub's run.
	use      *lifetime.Use // ends the viewer with its grant; nil: it was not accepted
	grant    *jws.Grant
	token    string
	set      roster.Key               // of its grant
	rights   roster.Rights            // its present rights, at most the grant's
	early    []protocol.ClientMessage // messages from before its admission
	greeted  bool
	notLed   bool   // it was told that it doesn't lead
	asking   bool   // the agent is being asked whether its log has the wanted output
	presence uint64 // version of the presence in its greeting
	wantsAll bool   // it gets every byte

	// Each has a lock of its own; for keys it is the queue's.
	outbox outbox       // its messages
	reader feed.Reader  // its position in the output
	socket socket       // writes both
	keys   input.Typist // its input
}

// newViewer returns a viewer of h, which is ready for viewers.
func newViewer(h *Hub, id turn.SocketID, g Guest) *Viewer {
	v := &Viewer{
		id:     id,
		name:   clip(g.Grant.Name),
		user:   g.Grant.Subject,
		counts: g.Counts, follows: g.Follow,
		hub:   h,
		grant: g.Grant,
		token: g.Token,
		asked: g.Asked,
	}
	if v.asked.IsZero() {
		v.asked = time.Now()
	}
	var client string
	v.pacer, client = g.names()
	v.keys.Init(h.typing, input.Options{
		ID: id, User: g.Grant.Subject, Client: client, Counts: g.Counts, Follows: g.Follow, Outbox: &v.outbox,
	})
	v.wantsAll = g.Exact && roster.RightsOf(g.Grant, h.key.Session, h.key.PTY)&roster.Record != 0
	v.socket = socket{v: v, sink: g.Socket}
	v.socket.offer, _ = g.Socket.(Offerer)
	if many, ok := g.Socket.(Batcher); ok && many.FD() >= 0 {
		v.socket.many = many
	}
	v.outbox = outbox{socket: &v.socket, overflow: h.metrics.ViewersCut.WithLabelValues(cutNotices)}
	v.reader.Init(h.feed, &v.socket, feed.Start{Since: g.Since, Astray: g.Astray}, g.Counts, v.wantsAll)
	return v
}

// may reports whether v has a right.
func (v *Viewer) may(right roster.Rights) bool { return v.rights&right != 0 }

// Start begins to write to the socket. over is called once, if the socket is over before
// stop is called, which must be. It ends the writing, and waits for it: the socket must
// end as well, or a write may take as long as its peer likes.
func (v *Viewer) Start(over func()) (stop func()) { return v.socket.start(over) }

// Serve writes to the socket until it or ctx ends, for who has nothing else to do
// meanwhile.
func (v *Viewer) Serve(ctx context.Context) {
	over := make(chan struct{})
	defer v.Start(func() { close(over) })()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// Pinged answers a ping of the viewer.
func (v *Viewer) Pinged() { v.outbox.pong() }

// Ack notes that the viewer has shown everything before offset.
func (v *Viewer) Ack(offset uint64) {
	if !v.counts {
		v.Complain(protocol.Errorf(protocol.KindInvalid, "ack belongs to %s", protocol.SubprotocolTerminal))
		return
	}
	v.hub.metrics.Acks.Inc()
	out := v.reader.Acked(offset)
	if out.Paced {
		v.hub.post(paced{v})
	}
	if out.Lost != "" {
		v.hub.post(fellBehind{v, out.Lost})
	}
	if out.Wake {
		v.socket.Wake()
	}
}

// Type hands the hub a plain viewer's input, in pieces that fit the tunnel. It
// waits until there is room, so the socket is not read meanwhile; ctx ends the
// wait.
func (v *Viewer) Type(ctx context.Context, input []byte) error { return v.keys.Type(ctx, input) }

// TypeNumbered hands the hub the input of a viewer that numbers it and names
// its term. Without room it is refused: its client repeats it, and its socket
// is still read.
func (v *Viewer) TypeNumbered(in protocol.BrowserInput) { v.keys.TypeNumbered(in) }

// Execute types text and, a moment later under the same term, Enter. It is
// refused while another one runs, or if there is no room.
func (v *Viewer) Execute(text string) {
	if v.keys.Execute(text) {
		v.hub.post(executed{}) // so that run wakes for the Enter
	}
}

// Say hands the hub a text message of the viewer. Input typed after a request
// to hand over or give back control waits until that is decided.
func (v *Viewer) Say(m protocol.ClientMessage) {
	if yields(m) {
		v.keys.Hold()
	}
	v.hub.post(said{v, m})
}

// asksFor reports whether m asks for control.
func asksFor(m protocol.ClientMessage) bool {
	return m.Type == protocol.ClientRequestControl || m.Type == protocol.ClientTakeControl || m.Type == protocol.ClientTakeBack
}

// yields reports whether m gives up control.
func yields(m protocol.ClientMessage) bool {
	return m.Type == protocol.ClientGrantControl || m.Type == protocol.ClientRevokeControl
}

// Complain tells the viewer that its message could not be obeyed.
func (v *Viewer) Complain(err error) { v.outbox.complain(err) }

// MayReauth refuses a grant of another user, or one that doesn't allow viewing
// this terminal.
func (v *Viewer) MayReauth(grant *jws.Grant) error {
	key := v.hub.key
	if grant.Subject != v.user || grant.Sandbox != key.Sandbox || !grant.Allows(key.Session, key.PTY, protocol.CapView) {
		return protocol.Errorf(protocol.KindForbidden, "the grant is not for this user and terminal")
	}
	return nil
}

// Reauth moves the socket to another grant, which the gateway has verified.
func (v *Viewer) Reauth(grant *jws.Grant, token string) { v.hub.post(renewed{v, grant, token}) }

// names returns a guest's ids for the agent: as a pace-setter, and for its
// input. The relay numbers a plain client's input, from 1 for each socket, so
// each socket is another client to the agent.
func (g Guest) names() (pacer, client string) {
	if g.Client == "" {
		name := rand.Text()
		return name, name
	}
	pacer = scoped(g.Grant.Subject, g.Client)
	if g.Counts {
		return pacer, pacer
	}
	return pacer, rand.Text()
}

// scoped returns the agent's id for a user's client: the same across sockets
// and relays, and nobody else's.
func scoped(user protocol.UserID, client string) string {
	sum := sha256.Sum256([]byte(string(user) + "\x00" + client))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}
