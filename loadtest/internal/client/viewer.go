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
	// attemptTimeout bounds one attempt, up to the greeting.
	attemptTimeout = 15 * time.Second
)

// Options say how somebody watches a terminal.
type Options struct {
	PTY   protocol.PTYID
	Relay int  // the first relay to try, by its place in the user's list
	Exact bool // every byte; needs the capability record
	// Controls asks for control when it is free. A terminal's creator has it
	// without asking.
	Controls bool

	Rate    int // bytes per second that are read; 0: no limit
	Receive int // the kernel's receive buffer in bytes; 0: its own choice

	// URL, if not empty, is a WebSocket that needs no ticket and greets nobody,
	// as a baseline's.
	URL string

	// Dialing, if not nil, bounds how many of those who share it connect at
	// once: an attempt sends to it and receives again.
	Dialing chan struct{}
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
	loop *Loop
	user *User
	opts Options
	to   Handler
	name string // of the client, across its sockets

	stop  context.CancelFunc
	ended chan struct{} // closed when it watches no more

	mu sync.Mutex
	// Guarded by mu.
	changed  chan struct{} // closed and replaced when somebody waits and something changes
	waiters  int
	socket   *socket // the present one, nil between two
	started  bool    // position is known
	position protocol.Position
	joining  Joining // of the present socket
	counts   Counts
	closed   bool // by pty_closed, or a code that says not to come back
	failure  error
	moved    string // the origin that was named
	control  protocol.ControlState
	waiting  bool // the sandbox is away
	typing   typing

	// Owned by run.
	relay int
	left  map[int]time.Time // relays that were silent, and when
}

// Watch begins to watch; Close ends it. The loop must outlive the viewer. ctx
// bounds all its life.
func Watch(ctx context.Context, loop *Loop, user *User, opts Options, to Handler) *Viewer {
	ctx, stop := context.WithCancel(ctx)
	v := &Viewer{
		loop: loop, user: user, opts: opts, to: to, name: strings.ToLower(rand.Text()),
		stop: stop, ended: make(chan struct{}), changed: make(chan struct{}), relay: opts.Relay,
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
		v.relay++
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
			v.shun()
			v.failed(errSilent)
			s.close()
			return
		case <-ctx.Done():
			s.close()
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
	if v.opts.URL != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	grant, err := v.user.Grant(ctx, v.user.relays[v.relay%len(v.user.relays)])
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]string{"type": protocol.ClientReauth, "grant": grant})
	if err != nil {
		return err
	}
	return s.link.write(appendFrame(nil, opText, text))
}

// announce tells those who wait that the viewer has ended.
func (v *Viewer) announce() { v.update(func() { v.closed = true }) }

func (v *Viewer) final() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

func (v *Viewer) failed(err error) {
	v.update(func() { v.failure = err })
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
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	s := &socket{viewer: v, over: make(chan struct{}), greeted: make(chan struct{}), silent: make(chan struct{})}
	joining := Joining{Asked: time.Now()}
	o, err := v.opening(ctx)
	if err != nil {
		return nil, err
	}
	k, early, err := v.loop.openSocket(ctx, o, s)
	if err != nil {
		return nil, err
	}
	joining.Opened = time.Now()
	s.link = k
	v.update(func() {
		v.socket, v.joining = s, joining
		v.counts.Attempts++
		v.typing.sent = 0
		if v.opts.URL != "" {
			s.bare(joining.Opened)
		}
	})
	if err := k.begin(early); err != nil {
		k.close()
		return nil, err
	}
	select {
	case <-s.greeted:
		return s, nil
	case <-s.over:
		return nil, s.why
	case <-ctx.Done():
		k.close()
		return nil, fmt.Errorf("waiting for the greeting: %w", ctx.Err())
	}
}

// opening buys a ticket and says how to use it.
func (v *Viewer) opening(ctx context.Context) (opening, error) {
	o := opening{url: v.opts.URL, receive: v.opts.Receive, rate: v.opts.Rate}
	if o.url != "" {
		return o, nil
	}
	v.mu.Lock()
	origin := v.moved
	v.moved = ""
	query := url.Values{protocol.QueryClient: {v.name}}
	if v.started {
		query.Set(protocol.QuerySince, v.position.String())
	}
	v.mu.Unlock()
	origin = v.choose(origin)
	if v.opts.Exact {
		query.Set(protocol.QueryMode, protocol.ViewExact)
	}
	t, err := v.user.ticket(ctx, origin, v.opts.PTY)
	if err != nil {
		return o, err
	}
	o.url, o.origin = t.URL+"?"+query.Encode(), origin
	o.subprotocols = []string{protocol.SubprotocolTerminal, protocol.SubprotocolTicket + t.Ticket}
	return o, nil
}

// update changes what is guarded, and tells those who wait.
func (v *Viewer) update(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
	v.signal()
}

// signal tells those who wait. The caller holds mu.
func (v *Viewer) signal() {
	if v.waiters > 0 {
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

// await waits until done, which may look at what is guarded.
func (v *Viewer) await(ctx context.Context, what string, done func() bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !done() {
		if v.closed {
			return fmt.Errorf("waiting for %s: the viewer has ended: %s", what, v.describe())
		}
		changed := v.changed
		v.waiters++
		v.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		v.mu.Lock()
		v.waiters--
		if err != nil && !done() {
			return fmt.Errorf("waiting for %s: %w: %s", what, err, v.describe())
		}
	}
	return nil
}

// describe says how the viewer is. The caller holds mu.
func (v *Viewer) describe() string {
	text := fmt.Sprintf("at %v after %d sockets", v.position, v.counts.Sockets)
	if v.waiting {
		text += ", the sandbox is away"
	}
	if n := len(v.typing.queue); n > 0 {
		text += fmt.Sprintf(", %d inputs unacknowledged", n)
	}
	if v.failure != nil {
		text += fmt.Sprintf(", the last failure: %v", v.failure)
	}
	return text
}

// AwaitJoined waits until a socket is greeted and has its keyframe.
func (v *Viewer) AwaitJoined(ctx context.Context) (Joining, error) {
	var j Joining
	err := v.await(ctx, "the greeting", func() bool {
		j = v.joining
		return !j.Complete.IsZero()
	})
	return j, err
}

// Position returns where the viewer is: the next byte.
func (v *Viewer) Position() protocol.Position {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.position
}

// Counts returns what has happened so far.
func (v *Viewer) Counts() Counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.counts
}

// Failure returns the last thing that went wrong, nil if nothing did.
func (v *Viewer) Failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failure
}

// Do calls f while no method of the handler runs.
func (v *Viewer) Do(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
	v.signal()
}

// Await waits until done holds, which is called while no method of the handler
// runs. what it waits for is told when it doesn't come.
func (v *Viewer) Await(ctx context.Context, what string, done func() bool) error {
	return v.await(ctx, what, done)
}

// AwaitOffset waits until the viewer stands there in the terminal's output, or
// beyond.
func (v *Viewer) AwaitOffset(ctx context.Context, offset uint64) error {
	return v.await(ctx, fmt.Sprintf("offset %d", offset), func() bool { return v.position.Offset >= offset })
}

// Connected reports whether there is a socket that was greeted.
func (v *Viewer) Connected() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.socket != nil && v.socket.live
}

// LastFailure is [Viewer.Failure] for who is called with the viewer locked.
func (v *Viewer) LastFailure() error { return v.failure }
