package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

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
	// Render is called with every binary frame before it counts as rendered;
	// it may take its time. Default: nothing.
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

// A Viewer watches a terminal and comes back by itself when its socket ends,
// as a browser does: with its position, its client name, and what it typed and
// nobody acknowledged.
type Viewer struct {
	// Static after construction.
	user  User
	opts  Viewing
	http  *http.Client
	stop  context.CancelFunc
	ended chan struct{} // closed when it watches no more
	wake  chan struct{} // something to write

	mu sync.Mutex
	// Guarded by mu.
	changed     chan struct{} // closed and replaced when something comes
	transcript  *Transcript
	connections []Connection
	failures    []error // of attempts to connect
	live        bool    // the present socket is attached
	waiting     bool
	control     protocol.ControlState
	recording   string
	refused     []protocol.InputDropped
	errors      []protocol.ErrorMessage
	typing      typing
	words       [][]byte             // text frames for the present socket
	heard       time.Time            // anything came on it
	left        map[string]time.Time // relays that were silent, and when
	acks        acks

	pass pass // owned by run
}

// A pass is what a viewer presents where.
type pass struct {
	base    string // the relay's origin
	grant   string
	granted time.Time
}

// Watch begins to watch. Close ends it.
func (u User) Watch(ctx context.Context, opts Viewing) *Viewer {
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{}).DialContext
	}
	if opts.Client == "" && !opts.Plain {
		opts.Client = randomName()
	}
	ctx, stop := context.WithCancel(ctx)
	v := &Viewer{
		user: u, opts: opts, stop: stop, pass: pass{base: u.Base, grant: opts.Grant},
		http:    &http.Client{Transport: &http.Transport{DialContext: opts.Dial, MaxIdleConnsPerHost: 1}},
		ended:   make(chan struct{}),
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}), transcript: NewTranscript(opts.Source, opts.Keep),
	}
	go v.run(ctx) // Close waits for it
	return v
}

// Close ends the viewer and returns its transcript.
func (v *Viewer) Close() *Transcript {
	v.stop()
	<-v.ended
	v.http.CloseIdleConnections()
	return v.transcript
}

// Pauses between attempts to connect.
const (
	firstPause = 10 * time.Millisecond
	mostPause  = 250 * time.Millisecond
)

func (v *Viewer) run(ctx context.Context) {
	defer close(v.ended)
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		conn, since, err := v.connect(ctx)
		if err == nil {
			pause = firstPause
			if v.serve(ctx, conn, since, began) || v.opts.Once {
				return
			}
		} else if ctx.Err() == nil {
			v.update(func() {
				v.failures = append(v.failures, err)
				v.leave()
			})
			if v.opts.Once {
				return
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, mostPause)
	}
}

// grantLife is how long a grant is used before another one is bought.
const grantLife = 4 * time.Minute

// connect opens a socket with the position reached so far.
func (v *Viewer) connect(ctx context.Context) (*websocket.Conn, *protocol.Position, error) {
	within := 10 * time.Second
	if len(v.opts.Relays) > 1 {
		within = attempt
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if v.opts.Grant == "" && time.Since(v.pass.granted) > grantLife {
		var answer struct {
			Grant string `json:"grant"`
		}
		if err := v.post(ctx, "/grants", v.user.Token, map[string]any{"session_id": v.opts.Session}, &answer); err != nil {
			return nil, nil, err
		}
		v.pass.grant, v.pass.granted = answer.Grant, time.Now()
	}
	var ticket Ticket
	err := v.post(ctx, "/pty-session", v.pass.grant, map[string]any{"session_id": v.opts.Session, "pty_id": v.opts.PTY}, &ticket)
	if err != nil {
		return nil, nil, err
	}
	query, since := v.query()
	subprotocols := []string{protocol.SubprotocolTerminal, protocol.SubprotocolTicket + ticket.Ticket}
	if v.opts.Plain {
		subprotocols = subprotocols[1:]
	}
	conn, resp, err := websocket.Dial(ctx, ticket.URL+query, &websocket.DialOptions{
		HTTPClient: v.http, HTTPHeader: http.Header{"Origin": {v.pass.base}}, Subprotocols: subprotocols,
	})
	if err != nil {
		return nil, nil, err
	}
	if got := resp.Header.Get("Sec-WebSocket-Protocol"); got != subprotocols[0] {
		conn.CloseNow()
		return nil, nil, fmt.Errorf("subprotocol %q was selected", got)
	}
	conn.SetReadLimit(protocol.MaxKeyframeBytes + 1<<20)
	return conn, since, nil
}

func (v *Viewer) post(ctx context.Context, path, bearer string, body, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.pass.base+path, strings.NewReader(string(data)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := v.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: status %d", path, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// query returns the query of the socket's address and the position in it, nil
// when it names none.
func (v *Viewer) query() (string, *protocol.Position) {
	v.mu.Lock()
	defer v.mu.Unlock()
	q := url.Values{}
	var since *protocol.Position
	switch {
	case v.transcript.started:
		at := v.transcript.Position()
		since = &at
		q.Set(protocol.QuerySince, at.String())
	case v.opts.Since != "":
		q.Set(protocol.QuerySince, v.opts.Since)
		if at, err := protocol.ParsePosition(v.opts.Since); err == nil {
			since = &at
		} else {
			since = &protocol.Position{} // of garbage
		}
	}
	if v.opts.Exact {
		q.Set(protocol.QueryMode, protocol.ViewExact)
	}
	if v.opts.Client != "" {
		q.Set(protocol.QueryClient, v.opts.Client)
	}
	if len(q) == 0 {
		return "", since
	}
	return "?" + q.Encode(), since
}

// serve reads a socket to its end and reports whether there is nothing to come
// back for.
func (v *Viewer) serve(ctx context.Context, conn *websocket.Conn, since *protocol.Position, began time.Time) (final bool) {
	v.update(func() {
		v.connections = append(v.connections, Connection{Began: began, Opened: time.Now(), Relay: v.pass.base})
		v.typing.sent, v.acks, v.words = 0, acks{}, nil
		v.heard = time.Now()
	})
	writing, stop := context.WithCancel(ctx)
	var written sync.WaitGroup
	written.Go(func() { v.write(writing, conn) })
	if len(v.opts.Relays) > 1 {
		written.Go(func() { v.listen(writing, conn) })
	}
	var err error
	for err == nil {
		var kind websocket.MessageType
		var data []byte
		if kind, data, err = conn.Read(ctx); err == nil {
			v.received(kind, data, since)
		}
	}
	stop()
	conn.CloseNow()
	written.Wait()
	v.update(func() {
		v.live = false
		c := v.present()
		c.Ended, c.Code = time.Now(), websocket.CloseStatus(err)
		switch {
		case c.Silent > 0:
			v.leave()
		case c.Moved != "" && time.Since(v.left[c.Moved]) > shunned:
			v.pass.base = c.Moved
		}
		switch c.Code {
		case 4004, 4403, 4404, 4409:
			final = true
		case 4401:
			v.pass.granted = time.Time{}
		}
	})
	return final
}

// present returns the latest socket.
func (v *Viewer) present() *Connection { return &v.connections[len(v.connections)-1] }

// update changes what is guarded, and tells those who wait.
func (v *Viewer) update(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
	close(v.changed)
	v.changed = make(chan struct{})
}

// signal has the writing side look.
func (v *Viewer) signal() {
	select {
	case v.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// A relay that has said nothing for askAfter is asked whether it is there, and
// left after silence. For shunned nobody goes back to it on another one's word.
const (
	askAfter = 1500 * time.Millisecond
	silence  = 3 * time.Second
	shunned  = 10 * time.Second
	// attempt is how long a relay may take to let somebody in, where there are
	// others.
	attempt = 4 * time.Second
)

// listen asks a silent relay for a sign of life, and ends the socket when none
// comes.
func (v *Viewer) listen(ctx context.Context, conn *websocket.Conn) {
	tick := time.NewTicker(silence / 12)
	defer tick.Stop()
	asked := time.Time{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		v.mu.Lock()
		heard := v.heard
		v.mu.Unlock()
		switch quiet := time.Since(heard); {
		case quiet >= silence && time.Since(asked) >= silence-askAfter:
			v.update(func() { v.present().Silent = quiet })
			conn.CloseNow()
			return
		case quiet >= askAfter && asked.Before(heard):
			asked = time.Now()
			_ = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"ping"}`)) // the reading side hears of it
		}
	}
}

// leave goes on to the next relay, where there is one. The caller holds mu.
func (v *Viewer) leave() {
	if len(v.opts.Relays) < 2 {
		return
	}
	if v.left == nil {
		v.left = map[string]time.Time{}
	}
	v.left[v.pass.base] = time.Now()
	next := (slices.Index(v.opts.Relays, v.pass.base) + 1) % len(v.opts.Relays)
	v.pass.base = v.opts.Relays[next]
}

func (v *Viewer) received(kind websocket.MessageType, data []byte, since *protocol.Position) {
	v.mu.Lock()
	v.heard = time.Now()
	v.mu.Unlock()
	if kind == websocket.MessageBinary {
		v.output(data)
		return
	}
	v.update(func() {
		if err := v.text(data, since); err != nil {
			v.transcript.fault("text frame %.80q: %v", data, err)
		}
	})
	v.signal()
}

// output takes a binary frame.
func (v *Viewer) output(p []byte) {
	if v.opts.Render != nil {
		v.opts.Render(p)
	}
	v.update(func() {
		if c := v.present(); c.First.IsZero() {
			c.First = time.Now()
		}
		keyframe := v.transcript.binary(p)
		v.acks.rendered(v.transcript.position, keyframe)
	})
	v.signal()
}

// text takes a text frame.
func (v *Viewer) text(data []byte, since *protocol.Position) error {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch head.Type {
	case protocol.ServerAttached:
		var m protocol.Attached
		err := json.Unmarshal(data, &m)
		c := v.present()
		c.Attached, c.Greeted = m, time.Now()
		v.live = true
		v.transcript.attached(m, since)
		v.acks.began(m.Offset)
		return err
	case protocol.ServerResync:
		var m protocol.Resync
		err := json.Unmarshal(data, &m)
		v.transcript.resync(m)
		v.acks.began(m.Offset)
		return err
	case protocol.ServerControlState:
		v.waiting = false
		v.control = protocol.ControlState{}
		return json.Unmarshal(data, &v.control)
	case protocol.ServerWaiting:
		v.waiting = true
	case protocol.ServerInputAck:
		var m protocol.InputWritten
		err := json.Unmarshal(data, &m)
		v.typing.acknowledged(m.Seq)
		return err
	case protocol.ServerInputRefused:
		var m protocol.InputDropped
		err := json.Unmarshal(data, &m)
		if !v.typing.refused(m.Seq, m.Reason) {
			v.refused = append(v.refused, m)
		}
		return err
	case protocol.ServerMoved:
		var m protocol.Moved
		err := json.Unmarshal(data, &m)
		v.present().Moved = m.Origin
		return err
	case protocol.ServerRecording:
		var m protocol.RecordingState
		err := json.Unmarshal(data, &m)
		v.recording = m.ID
		return err
	case protocol.ServerError:
		var m protocol.ErrorMessage
		err := json.Unmarshal(data, &m)
		v.errors = append(v.errors, m)
		return err
	}
	return nil
}

// Await waits until done, which may look at everything that is guarded.
func (v *Viewer) Await(ctx context.Context, what string, done func() bool) error {
	for {
		v.mu.Lock()
		ok, changed := done(), v.changed
		v.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-v.ended:
			v.mu.Lock()
			defer v.mu.Unlock()
			if done() {
				return nil
			}
			return fmt.Errorf("waiting for %s: the viewer has ended: %s", what, v.describe())
		case <-ctx.Done():
			v.mu.Lock()
			defer v.mu.Unlock()
			return fmt.Errorf("waiting for %s: %w: %s", what, ctx.Err(), v.describe())
		}
	}
}

// describe says where the viewer is. The caller holds mu.
func (v *Viewer) describe() string {
	out := fmt.Sprintf("at %v, live %v, waiting %v, %d keystrokes unacknowledged, %d refused, %d sockets",
		v.transcript.Position(), v.live, v.waiting, len(v.typing.queue), len(v.refused), len(v.connections))
	if len(v.connections) > 0 {
		c := v.present()
		out += fmt.Sprintf(", the last one opened %v ago, attached %+v, closed %v", time.Since(c.Opened).Round(time.Millisecond), c.Attached, c.Code)
	}
	if n := len(v.failures); n > 0 {
		out += fmt.Sprintf("; %d attempts failed, the last one: %v", n, v.failures[n-1])
	}
	if n := len(v.errors); n > 0 {
		out += fmt.Sprintf("; errors %v", v.errors)
	}
	if err := errors.Join(v.transcript.faults...); err != nil {
		out += fmt.Sprintf("; %v", err)
	}
	return out
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
func (v *Viewer) Connections() []Connection {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]Connection(nil), v.connections...)
}

// Resyncs returns how often the viewer was moved ahead on a socket.
func (v *Viewer) Resyncs() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, skip := range v.transcript.skips {
		if skip.How == protocol.ServerResync {
			n++
		}
	}
	return n
}

// Position returns where the viewer is.
func (v *Viewer) Position() protocol.Position {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.transcript.Position()
}
