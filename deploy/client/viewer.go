package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Pauses between attempts to connect: a relay may be gone for a moment, and
// many viewers come back at once.
const (
	firstPause = 10 * time.Millisecond
	mostPause  = 500 * time.Millisecond
	// attemptTimeout bounds one attempt, up to the greeting, when Options don't.
	attemptTimeout = 15 * time.Second
)

// Options say how somebody watches a terminal.
type Options struct {
	PTY   protocol.PTYID
	Relay int    // index of the first relay to try, in the user's list
	Since string // where the first socket begins, as a [protocol.Position] prints itself; empty: nowhere
	Name  string // of the client, across its sockets; empty: a random one
	Exact bool   // every byte; needs the capability record
	Once  bool   // no other socket after the first
	// Plain speaks the socket's first version: nothing is acknowledged, and
	// nothing can be typed.
	Plain bool
	// Controls asks for control when it is free. A terminal's creator has it
	// without asking.
	Controls bool

	// URL, if not empty, is a WebSocket that needs no ticket and greets nobody,
	// as a baseline's.
	URL string

	// Dialing, if not nil, bounds how many of those who share it connect at
	// once: an attempt sends to it and receives again.
	Dialing chan struct{}
	// Dial makes the sockets' connections; nil: the user's does.
	Dial DialFunc
	// Transport serves the sockets' connections; nil: a goroutine for each does.
	Transport Transport

	// Attempt bounds one attempt to connect, up to the greeting; 0: 15 s.
	Attempt time.Duration
	// Silence is how long a relay of several may say nothing until it is left; 0:
	// the constant of this name.
	Silence time.Duration
}

// A Handler hears what a viewer gets. Its methods are called one at a time, and
// must neither wait nor call the viewer.
type Handler interface {
	// Output gets bytes of output, valid during the call only.
	Output(p []byte, at time.Time)
	// Jump says that the output that follows doesn't continue what came before.
	Jump(Jump)
	// Lost says that a socket has ended, after Jump's greeting or before it.
	Lost(at time.Time, why error)
}

// An Observer is a Handler that hears the rest as well.
type Observer interface {
	Handler
	// Opened says that a socket is open, at the relay of that origin. It is not
	// greeted yet.
	Opened(relay string, j Joining)
	// Keyframe gets bytes of the keyframe that stands for what a Jump left out,
	// valid during the call only. last says that they end it.
	Keyframe(p []byte, last bool)
	// Message gets a text message after the viewer has obeyed it; p is valid
	// during the call only.
	Message(typ string, p []byte)
}

// A Jump is a greeting, or a resync.
type Jump struct {
	At       time.Time
	From, To protocol.Position // From is the zero position at the first greeting
	Mode     string            // of attached, or [protocol.ServerResync]
	Keyframe int               // bytes of the keyframe that stands for what is left out
	Socket   int               // counts the viewer's sockets from 1
}

// Continues reports whether nothing is left out.
func (j Jump) Continues() bool { return j.Socket > 1 && j.From == j.To }

// A Joining is how long it took to get in.
type Joining struct {
	Asked    time.Time // the ticket
	Opened   time.Time // the upgrade was answered
	Greeted  time.Time // attached came
	Complete time.Time // and the keyframe, if there is one
}

// Counts are what has happened to a viewer.
type Counts struct {
	Sockets  int // that were greeted
	Attempts int // to open one
	Resyncs  int
	Gaps     int // greetings that left something out
	Bytes    int64
}

// A Viewer watches a terminal. When its socket ends it comes back by itself,
// as a browser does: with its position, its name, and what it typed and nobody
// acknowledged.
type Viewer struct {
	// Static after construction.
	user *User
	opts Options
	to   Handler

	stop  context.CancelFunc
	ended chan struct{} // closed when it watches no more

	relays relays // owned by run

	mu sync.Mutex
	// Guarded by mu.
	changed  chan struct{} // closed and replaced when somebody waits and something changes
	waiters  int
	socket   *socket // the present one, nil between two
	position protocol.Position
	joining  Joining // of the present socket
	counts   Counts
	failure  error
	moved    string // the origin that was named
	control  protocol.ControlState
	outbox   outbox
	started  bool // position is known
	closed   bool // by pty_closed, or a code that says not to come back
	waiting  bool // the sandbox is away
}

// Watch begins to watch; Close ends it. A transport must outlive the viewer. ctx
// bounds all its life.
func Watch(ctx context.Context, user *User, opts Options, to Handler) *Viewer {
	ctx, stop := context.WithCancel(ctx)
	if opts.Name == "" {
		opts.Name = strings.ToLower(rand.Text())
	}
	if opts.Attempt == 0 {
		opts.Attempt = attemptTimeout
	}
	if opts.Silence == 0 {
		opts.Silence = Silence
	}
	v := &Viewer{
		user: user, opts: opts, to: to,
		stop: stop, ended: make(chan struct{}), changed: make(chan struct{}),
		relays: relays{known: user.opts, at: opts.Relay},
	}
	go v.run(ctx) // Close waits for it
	return v
}

// Close ends the viewer. No method of its handler is called afterwards.
func (v *Viewer) Close() {
	v.stop()
	<-v.ended
}

// Ended is closed when the viewer watches no more: it was closed, or told not
// to come back.
func (v *Viewer) Ended() <-chan struct{} { return v.ended }

func (v *Viewer) run(ctx context.Context) {
	defer close(v.ended)
	defer v.announce()
	pause := firstPause
	for ctx.Err() == nil {
		s, err := v.connect(ctx)
		if err == nil {
			pause = firstPause
			if v.stay(ctx, s); v.final() || ctx.Err() != nil {
				return
			}
		} else {
			v.failed(err)
		}
		if v.opts.Once {
			return
		}
		v.relays.advance()
		select {
		case <-time.After(pause/2 + mathrand.N(pause)): // jitter: others were thrown out as well
		case <-ctx.Done():
		}
		pause = min(2*pause, mostPause)
	}
}

// stay waits for the end of a socket, and renews its grant.
func (v *Viewer) stay(ctx context.Context, s *socket) {
	renew := time.NewTicker(grantLife)
	defer renew.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-s.silent:
			v.relays.shun(time.Now())
			s.link.Close()
			return
		case <-ctx.Done():
			s.link.Close()
			return
		case <-renew.C:
			if err := v.reauth(ctx, s); err != nil {
				v.failed(err) // the socket ends with its grant, and the next one has another
			}
		}
	}
}

// reauth gives a socket another grant, before the one it lives under ends.
func (v *Viewer) reauth(ctx context.Context, s *socket) error {
	if v.opts.URL != "" || v.user.opts.Grant != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, v.opts.Attempt)
	defer cancel()
	grant, err := v.user.Grant(ctx, v.relays.current())
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]string{"type": protocol.ClientReauth, "grant": grant})
	if err != nil {
		return err
	}
	return s.write(opText, text)
}

// announce tells those who wait that the viewer has ended.
func (v *Viewer) announce() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	v.signal()
}

func (v *Viewer) final() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

func (v *Viewer) failed(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failure = err
	v.signal()
}

// connect opens a socket and waits for its greeting.
func (v *Viewer) connect(ctx context.Context) (*socket, error) {
	if v.opts.Dialing != nil {
		select {
		case v.opts.Dialing <- struct{}{}:
			defer func() { <-v.opts.Dialing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, v.opts.Attempt)
	defer cancel()
	s := &socket{viewer: v, over: make(chan struct{}), greeted: make(chan struct{}), silent: make(chan struct{})}
	joining := Joining{Asked: time.Now()}
	o, err := v.opening(ctx)
	if err != nil {
		return nil, err
	}
	k, early, err := openSocket(ctx, o, s)
	if err != nil {
		return nil, err
	}
	joining.Opened = time.Now()
	s.link = k
	v.opened(s, o.origin, joining)
	if err := k.Begin(early); err != nil {
		return nil, err
	}
	select {
	case <-s.greeted:
		return s, nil
	case <-s.over:
		return nil, s.why
	case <-ctx.Done():
		k.Close()
		return nil, fmt.Errorf("waiting for the greeting: %w", ctx.Err())
	}
}

// opened makes s the present socket.
func (v *Viewer) opened(s *socket, origin string, j Joining) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.socket, v.joining = s, j
	v.counts.Attempts++
	v.outbox.again()
	if observer, ok := v.to.(Observer); ok {
		observer.Opened(origin, j)
	}
	if v.opts.URL != "" {
		s.bare(j.Opened)
	}
	v.signal()
}

// opening buys a ticket and says how to use it.
func (v *Viewer) opening(ctx context.Context) (opening, error) {
	o := opening{url: v.opts.URL, dial: v.opts.Dial, tls: v.user.opts.TLS, transport: v.opts.Transport}
	if o.dial == nil {
		o.dial = v.user.opts.Dial
	}
	if o.url != "" {
		return o, nil
	}
	query := url.Values{}
	if !v.opts.Plain {
		query.Set(protocol.QueryClient, v.opts.Name)
	}
	if v.opts.Exact {
		query.Set(protocol.QueryMode, protocol.ViewExact)
	}
	v.mu.Lock()
	named := v.moved
	v.moved = ""
	if v.started {
		query.Set(protocol.QuerySince, v.position.String())
	} else if v.opts.Since != "" {
		query.Set(protocol.QuerySince, v.opts.Since)
	}
	v.mu.Unlock()
	o.origin = v.relays.choose(named, time.Now())
	t, err := v.user.ticket(ctx, o.origin, v.opts.PTY)
	if err != nil {
		return o, err
	}
	o.url = t.URL + "?" + query.Encode()
	o.subprotocols = []string{protocol.SubprotocolTerminal, protocol.SubprotocolTicket + t.Ticket}
	if v.opts.Plain {
		o.subprotocols = o.subprotocols[1:]
	}
	return o, nil
}
