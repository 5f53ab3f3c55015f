package hub

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// A Viewer is one socket attached to a hub: who it is and what it may, and the
// parts that each have an owner of their own.
type Viewer struct {
	// Static after construction.
	id      turn.SocketID
	name    string
	user    protocol.UserID
	pacer   string    // names it to the agent when it holds the terminal back
	follows bool      // it never gives the terminal its size
	counts  bool      // it speaks terminal.v2: acknowledges output, numbers input
	asked   time.Time // when it came
	hub     *Hub

	// Owned by the hub's run.
	use      *lifetime.Use // ends the viewer with its grant; nil: it was not taken in
	grant    *jws.Grant
	token    string
	set      roster.Key               // of its grant
	rights   roster.Rights            // that it has: no more than the grant's
	early    []protocol.ClientMessage // what it said before it was admitted
	greeted  bool
	notLed   bool   // it was told that it doesn't give the size
	asking   bool   // the agent is being asked whether its log has what it wants
	presence uint64 // version of the presence in its greeting
	wantsAll bool   // it asked for every byte, and may

	// Each with a lock of its own; of keys it is the queue's.
	outbox outbox       // what it is to be told
	reader feed.Reader  // where it is in the output
	socket socket       // who writes both
	keys   input.Typist // what it types
}

// newViewer returns a viewer of h, which has been ready for viewers.
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
	v.socket = socket{v: v, sink: g.Socket, wake: make(chan struct{}, 1)}
	v.socket.offer, _ = g.Socket.(Offerer)
	v.outbox = outbox{socket: &v.socket, overflow: h.metrics.ViewersCut.WithLabelValues(cutNotices)}
	v.reader.Init(h.feed, &v.socket, feed.Start{Since: g.Since, Astray: g.Astray}, g.Counts, v.wantsAll)
	return v
}

// may reports whether v has a right.
func (v *Viewer) may(right roster.Rights) bool { return v.rights&right != 0 }

// Serve writes to the socket until it ends. The gateway runs it beside its
// reader and waits for both.
func (v *Viewer) Serve(ctx context.Context) { v.socket.serve(ctx) }

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

// Type hands the hub what a plain viewer typed, in the pieces that the tunnel
// carries. It returns when there is room for it, so a socket whose input is not
// taken is not read; ctx ends the wait.
func (v *Viewer) Type(ctx context.Context, input []byte) error { return v.keys.Type(ctx, input) }

// TypeNumbered hands the hub what a viewer typed who numbers its input and names
// the term. What there is no room for is refused: its client knows what to do, and
// its socket is read on.
func (v *Viewer) TypeNumbered(in protocol.BrowserInput) { v.keys.TypeNumbered(in) }

// Execute types text and, a moment later under the same term, Enter. One at a
// time: another one meanwhile is refused, as is one that there is no room for.
func (v *Viewer) Execute(text string) {
	if v.keys.Execute(text) {
		v.hub.post(executed{}) // so that run wakes for the Enter
	}
}

// Say hands the hub a text frame of the viewer. What it types behind a wish to
// hand control over or to give it back is judged when that is decided.
func (v *Viewer) Say(m protocol.ClientMessage) {
	if yields(m) {
		v.keys.Hold()
	}
	v.hub.post(said{v, m})
}

// asksFor reports whether who says m wants control.
func asksFor(m protocol.ClientMessage) bool {
	return m.Type == protocol.ClientRequestControl || m.Type == protocol.ClientTakeControl || m.Type == protocol.ClientTakeBack
}

// yields reports whether who says m means to have control no longer.
func yields(m protocol.ClientMessage) bool {
	return m.Type == protocol.ClientGrantControl || m.Type == protocol.ClientRevokeControl
}

// Complain tells the viewer that a frame of its own could not be obeyed.
func (v *Viewer) Complain(err error) { v.outbox.complain(err) }

// MayReauth refuses a grant of another user, or one that doesn't allow to view
// this terminal.
func (v *Viewer) MayReauth(grant *jws.Grant) error {
	key := v.hub.key
	if grant.Subject != v.user || grant.Sandbox != key.Sandbox || !grant.Allows(key.Session, key.PTY, protocol.CapView) {
		return protocol.Errorf(protocol.KindForbidden, "the grant is not for this user and terminal")
	}
	return nil
}

// Reauth puts the socket under another grant, which the gateway has verified.
func (v *Viewer) Reauth(grant *jws.Grant, token string) { v.hub.post(renewed{v, grant, token}) }
