package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/protocol"
)

// Viewing says how somebody watches a terminal.
type Viewing struct {
	Session protocol.SessionID
	PTY     protocol.PTYID
	Since   string // for the first socket; as it is
	Exact   bool   // every byte; needs the capability record
	Plain   bool   // without terminal.v2: nothing is acknowledged
	Client  string // names the client across its sockets; empty: a random one unless Plain
	Once    bool   // no other socket after the first
	Grant   string // used for all sockets; empty: bought when needed
	Source  Source // compared with what comes; may be nil
	Keep    int    // bytes of output to keep
	// Relays are where to go, one after the other, when the socket's relay is
	// silent; empty: it is waited for.
	Relays []string
	// Dial makes the connections, default [net.Dialer.DialContext].
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Render is called with all output and keyframes, in pieces; it must not
	// call the viewer. Default: nothing.
	Render func(p []byte)
}

// A Connection is the life of one socket of a viewer.
type Connection struct {
	Began    time.Time // the ticket was asked for
	Opened   time.Time // the upgrade was answered
	Attached protocol.Attached
	Greeted  time.Time // attached came
	First    time.Time // the first output or keyframe came; zero: none did
	Ended    time.Time
	Code     websocket.StatusCode // −1: without a close frame
	Moved    string               // the origin that was named before the end
	Silent   time.Duration        // it was left because nothing had come for so long
	Relay    string               // its origin
}

// A Viewer is a [client.Viewer] that remembers and checks what it gets, as its
// [client.Observer].
type Viewer struct {
	// Static after construction.
	user   User
	opts   Viewing
	client *client.Viewer
	sold   *client.User

	// Used by functions that the client calls, one at a time.
	transcript  *Transcript
	connections []Connection
	live        bool // the present socket is attached
	keyframe    []byte
	control     protocol.ControlState
	recording   string
	errors      []protocol.ErrorMessage
}

// Bounds of an attempt to be let in: of the only relay, and of one of several.
const (
	attemptAtOne = 10 * time.Second
	attempt      = 4 * time.Second
)

// Watch begins to watch. Close ends it.
func (u User) Watch(ctx context.Context, opts Viewing) *Viewer {
	v := &Viewer{user: u, opts: opts, transcript: NewTranscript(opts.Source, opts.Keep)}
	o := client.UserOptions{
		Token: u.Token, Session: opts.Session, Relays: opts.Relays, Grant: opts.Grant, Anywhere: true,
		Dial: opts.Dial,
	}
	watching := client.Options{
		PTY: opts.PTY, Since: opts.Since, Name: opts.Client, Exact: opts.Exact, Plain: opts.Plain, Once: opts.Once,
		Attempt: attempt,
	}
	if len(o.Relays) < 2 {
		o.Relays, watching.Attempt = []string{u.Base}, attemptAtOne
	}
	for i, relay := range o.Relays {
		if relay == u.Base {
			watching.Relay = i
		}
	}
	v.sold = client.NewUser(o)
	v.client = client.Watch(ctx, v.sold, watching, v)
	return v
}

// Close ends the viewer and returns its transcript.
func (v *Viewer) Close() *Transcript {
	v.client.Close()
	v.sold.Close()
	return v.transcript
}

// present returns the latest socket.
func (v *Viewer) present() *Connection { return &v.connections[len(v.connections)-1] }

// Opened implements [client.Observer].
func (v *Viewer) Opened(relay string, j client.Joining) {
	v.connections = append(v.connections, Connection{Began: j.Asked, Opened: j.Opened, Relay: relay})
	v.keyframe = nil
}

// Output implements [client.Handler].
func (v *Viewer) Output(p []byte, at time.Time) {
	v.rendered(p, at)
	if v.transcript.binary(p) {
		v.transcript.fault("%d bytes of output instead of a keyframe", len(p))
	}
}

// Keyframe implements [client.Observer].
func (v *Viewer) Keyframe(p []byte, last bool) {
	v.rendered(p, time.Now())
	if v.keyframe = append(v.keyframe, p...); last {
		v.transcript.binary(v.keyframe)
		v.keyframe = nil
	}
}

func (v *Viewer) rendered(p []byte, at time.Time) {
	if v.opts.Render != nil {
		v.opts.Render(p)
	}
	if c := v.present(); c.First.IsZero() {
		c.First = at
	}
}

// Jump implements [client.Handler]. The message that it stands for is read by
// Message.
func (v *Viewer) Jump(client.Jump) {}

// Lost implements [client.Handler].
func (v *Viewer) Lost(at time.Time, why error) {
	v.live = false
	c := v.present()
	c.Ended, c.Code = at, -1
	if closing, ok := errors.AsType[*client.CloseError](why); ok {
		c.Code = websocket.StatusCode(closing.Code)
	}
	if silent, ok := errors.AsType[*client.SilentError](why); ok {
		c.Silent = silent.Quiet
	}
	if broken, ok := errors.AsType[*client.ProtocolError](why); ok {
		v.transcript.fault("the relay broke the protocol: %v", broken)
	}
}

// Message implements [client.Observer].
func (v *Viewer) Message(typ string, p []byte) {
	if err := v.read(typ, p); err != nil {
		v.transcript.fault("text frame %.80q: %v", p, err)
	}
}

// read notes what a text message says.
func (v *Viewer) read(typ string, p []byte) error {
	switch typ {
	case protocol.ServerAttached:
		c := v.present()
		err := json.Unmarshal(p, &c.Attached)
		c.Greeted = time.Now()
		v.live = true
		v.transcript.attached(c.Attached, v.asked())
		return err
	case protocol.ServerResync:
		var m protocol.Resync
		err := json.Unmarshal(p, &m)
		v.transcript.resync(m)
		return err
	case protocol.ServerControlState:
		v.control = protocol.ControlState{}
		return json.Unmarshal(p, &v.control)
	case protocol.ServerMoved:
		var m protocol.Moved
		err := json.Unmarshal(p, &m)
		v.present().Moved = m.Origin
		return err
	case protocol.ServerRecording:
		var m protocol.RecordingState
		err := json.Unmarshal(p, &m)
		v.recording = m.ID
		return err
	case protocol.ServerError:
		var m protocol.ErrorMessage
		err := json.Unmarshal(p, &m)
		v.errors = append(v.errors, m)
		return err
	case "":
		return errors.New("without a type")
	}
	return nil
}

// asked returns the position that the present socket asked for, nil for none.
func (v *Viewer) asked() *protocol.Position {
	var at protocol.Position
	switch {
	case v.transcript.started:
		at = v.transcript.Position()
	case v.opts.Since != "":
		at, _ = protocol.ParsePosition(v.opts.Since) // of garbage the zero one
	default:
		return nil
	}
	return &at
}

// Await waits until done, which may look at everything that the viewer knows.
func (v *Viewer) Await(ctx context.Context, what string, done func() bool) error {
	return v.explain(v.client.Await(ctx, what, done))
}

// explain adds how the viewer is to an error.
func (v *Viewer) explain(err error) error {
	if err == nil {
		return nil
	}
	v.client.Do(func() { err = fmt.Errorf("%w; %s", err, v.describe()) })
	return err
}

// describe says how the viewer is.
func (v *Viewer) describe() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "live %v, %d sockets", v.live, len(v.connections))
	if len(v.connections) > 0 {
		c := v.present()
		fmt.Fprintf(&out, ", the last one opened %v ago, attached %+v, closed %v", time.Since(c.Opened).Round(time.Millisecond), c.Attached, c.Code)
	}
	if len(v.errors) > 0 {
		fmt.Fprintf(&out, "; errors %v", v.errors)
	}
	if err := errors.Join(v.transcript.faults...); err != nil {
		fmt.Fprintf(&out, "; %v", err)
	}
	return out.String()
}

// AwaitOffset waits until everything before offset has come.
func (v *Viewer) AwaitOffset(ctx context.Context, offset uint64) error {
	return v.Await(ctx, fmt.Sprintf("offset %d", offset), func() bool { return v.transcript.position >= offset })
}

// AwaitLive waits until a socket is attached.
func (v *Viewer) AwaitLive(ctx context.Context) error {
	return v.Await(ctx, "attached", func() bool { return v.live })
}

// Connections returns the lives of the sockets so far.
func (v *Viewer) Connections() (all []Connection) {
	v.client.Do(func() { all = append(all, v.connections...) })
	return all
}

// Resyncs returns how often the viewer was moved ahead on a socket.
func (v *Viewer) Resyncs() (n int) {
	v.client.Do(func() {
		for _, skip := range v.transcript.skips {
			if skip.How == protocol.ServerResync {
				n++
			}
		}
	})
	return n
}

// Position returns where the viewer is.
func (v *Viewer) Position() (at protocol.Position) {
	v.client.Do(func() { at = v.transcript.Position() })
	return at
}

// Type sends keystrokes and returns their sequence. It waits while too many are
// on their way, and for the first term.
func (v *Viewer) Type(ctx context.Context, keys string) (uint64, error) {
	seq, err := v.client.TypeAnyway(ctx, keys)
	return seq, v.explain(err)
}

// AwaitWritten waits until nothing that was typed is unacknowledged, and
// returns what was refused.
func (v *Viewer) AwaitWritten(ctx context.Context) ([]protocol.InputDropped, error) {
	err := v.client.AwaitWritten(ctx)
	if _, refused := errors.AsType[*client.RefusedError](err); refused {
		err = nil
	}
	return v.client.Refused(), v.explain(err)
}

// Say sends a message without members by the socket that is attached.
func (v *Viewer) Say(ctx context.Context, typ string) error {
	return v.explain(v.client.Say(ctx, typ))
}

// Control returns who controls the terminal, as the viewer was told.
func (v *Viewer) Control() protocol.ControlState { return v.client.Control() }
