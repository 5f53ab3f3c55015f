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

// Pauses between connection attempts: a relay may be briefly away, and many
// viewers reconnect at once.
const (
	firstPause = 10 * time.Millisecond
	mostPause  = 500 * time.Millisecond
	// attemptTimeout bounds one attempt, up to the greeting, unless Options do.
	attemptTimeout = 15 * time.Second
)

// Options say how to watch a terminal.
type Options struct {
	PTY   protocol.PTYID
	Relay int    // index of the first relay to try, in the user's list
	Since string // position of the first socket, as a [protocol.Position] prints itself; empty: none
	Name  string // client id, across its sockets; empty: a random one
	Exact bool   // get every byte; needs the capability record
	Once  bool   // don't reconnect
	// Plain uses version 1 of the protocol: no acknowledgements, no typing.
	Plain bool
	// Controls asks for control whenever it is free. A terminal's creator gets it
	// without asking.
	Controls bool

	// URL, if not empty, is a WebSocket without ticket and greeting, such as a
	// baseline's.
	URL string

	// Dialing, if not nil, bounds how many viewers connect at once: an attempt
	// sends to it and receives afterwards.
	Dialing chan struct{}
	// Dial makes the sockets' connections; nil: the user's does.
	Dial DialFunc
	// Transport serves the sockets' connections; nil: a goroutine for each.
	Transport Transport

	// Attempt bounds one attempt to connect, up to the greeting; 0: 15 s.
	Attempt time.Duration
	// Silence is how long a relay may be silent before the viewer switches to
	// another one; 0: the constant Silence.
	Silence time.Duration
}

// A Handler gets what a viewer receives. Its methods are called one at a time,
// and must neither block nor call the viewer.
type Handler interface {
	// Output gets output bytes, valid only during the call.
	Output(p []byte, at time.Time)
	// Jump says that the next output doesn't continue the last.
	Jump(Jump)
	// Lost says that a socket has ended, before or after its greeting.
	Lost(at time.Time, why error)
}

// An Observer is a Handler that gets everything else, too.
type Observer interface {
	Handler
	// Opened says that a socket is open, at the relay with that origin, before its
	// greeting.
	Opened(relay string, j Joining)
	// Keyframe gets bytes of the keyframe that replaces what a Jump skipped, valid
	// only during the call; last marks the end.
	Keyframe(p []byte, last bool)
	// Message gets a text message after the viewer has handled it; p is valid only
	// during the call.
	Message(typ string, p []byte)
}

// A Jump is a greeting, or a resync.
type Jump struct {
	At       time.Time
	From, To protocol.Position // From is the zero position at the first greeting
	Mode     string            // of attached, or [protocol.ServerResync]
	Keyframe int               // bytes of the keyframe that replaces what is skipped
	Socket   int               // number of the socket, from 1
}

// Continues reports whether no output is skipped.
func (j Jump) Continues() bool { return j.Socket > 1 && j.From == j.To }

// A Joining records the times of a join.
type Joining struct {
	Asked    time.Time // the ticket was requested
	Opened   time.Time // the upgrade was answered
	Greeted  time.Time // attached has come
	Complete time.Time // the keyframe, if any, has come, too
}

// Counts count a viewer's events.
type Counts struct {
	Sockets  int // greeted sockets
	Attempts int // attempts to open one
	Resyncs  int
	Gaps     int // greetings that skipped output
	Bytes    int64
}

// A Viewer watches a terminal. When its socket ends it reconnects as a browser
// does: with its position, its client id, and its unacknowledged input.
type Viewer struct {
	// Static after construction.
	user *User
	opts Options
	to   Handler

	stop  context.CancelFunc
	ended chan struct{} // closed when it has ended

	relays relays // owned by run

	mu sync.Mutex
	// Guarded by mu.
	changed  chan struct{} // closed and replaced at a change while somebody waits
	waiters  int
	socket   *socket // the current one, nil between two
	position protocol.Position
	joining  Joining // of the current socket
	counts   Counts
	failure  error
	moved    string // the origin that a relay named
	control  protocol.ControlState
	outbox   outbox
	started  bool // position is known
	closed   bool // by pty_closed, or a final close code
	waiting  bool // the sandbox is away
}

// Watch starts a viewer; Close ends it, as does ctx. A transport must outlive
// the viewer.
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

// Ended is closed when the viewer has ended: it was closed, or told not to
// reconnect.
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

// stay waits for the end of a socket, and renews its grant meanwhile.
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
				v.failed(err) // the socket ends with its grant; the next one gets a new grant
			}
		}
	}
}

// reauth gives a socket a new grant before the present one ends.
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

// announce wakes those who wait, as the viewer has ended.
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

// opened makes s the current socket.
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

// opening gets a ticket and returns how to open a socket with it.
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
