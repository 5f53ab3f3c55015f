// Package wsslink carries tunnels over WebSockets, where there is no way for
// QUIC: one socket for each stream of the carrier.
package wsslink

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

const (
	// Path is where a relay takes these WebSockets.
	Path = "/tunnel"
	// Subprotocol names version 1 of what is in them.
	Subprotocol = "fairlead.1"
	// Name is what this carrier is called.
	Name = "websocket"

	// exporterHeader is the relay's word that the TLS connection ends before it.
	exporterHeader = "Fairlead-Exporter"
	exporterNone   = "none"

	exporterLabel = "EXPORTER-fairlead"
	exporterBytes = 32

	// maxSockets bounds the sockets of one connection: the control stream and
	// its lanes.
	maxSockets = 16
	// maxMessage bounds a message in bytes: one write into a lane, with the
	// header that yamux adds, fits.
	maxMessage = protocol.MaxStreamWrite + 512
	// maxWrite bounds what is written at once in bytes, of a longer write.
	maxWrite = 4 * maxMessage
	// maxReason bounds the reason of a close in bytes.
	maxReason = 120
	// kindCloseCode is added to a kind to make the code of a close.
	kindCloseCode = 4000
	// closingTime is how long a socket may take to say why it closes, and
	// leavingTime how long the other end gets to close it too.
	closingTime = 200 * time.Millisecond
	leavingTime = time.Second
)

// errClosed is the end of a stream that was closed at this end.
var errClosed = errors.New("wsslink: stream closed")

// A link is a group of WebSockets as a carrier. It lives as long as all of them
// that weren't closed as streams: what one of them carried can't go on.
type link struct {
	// Static after construction.
	exporter []byte
	remote   net.Addr
	opener   *socket // the first
	done     chan struct{}
	incoming chan *socket // at the relay: those nobody has accepted yet

	dial     func(ctx context.Context, secret []byte) (*socket, error) // at the agent
	listener *Listener                                                 // at the relay

	// Guarded by mu.
	mu      sync.Mutex
	first   *socket // at the agent: the socket that Open returns first
	secret  []byte
	sockets map[*socket]struct{}
	coming  int           // at the relay: sockets that are being upgraded
	past    carrier.Stats // of the sockets that were removed
	err     error         // why the link is over
}

func newLink(exporter []byte, remote net.Addr) *link {
	return &link{
		exporter: exporter, remote: remote, done: make(chan struct{}),
		incoming: make(chan *socket, maxSockets), sockets: map[*socket]struct{}{},
	}
}

// add makes s a socket of the link and starts its reading. It fails when the
// link is over or has enough.
func (l *link) add(s *socket) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addLocked(s)
}

// settle is add for a socket whose place was reserved.
func (l *link) settle(s *socket) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coming--
	return l.addLocked(s)
}

// addLocked is add with the lock. The caller holds mu.
func (l *link) addLocked(s *socket) error {
	if l.err != nil {
		return l.err
	}
	if len(l.sockets) >= maxSockets {
		return protocol.Errorf(protocol.KindTooMany, "over %d sockets of one tunnel", maxSockets)
	}
	s.link = l
	l.sockets[s] = struct{}{}
	s.start()
	return nil
}

// remove takes away a socket that is closed.
func (l *link) remove(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.sockets[s]; there {
		delete(l.sockets, s)
		s.raw.count(&l.past)
	}
}

// Stats implements carrier.Counting: bytes of frames, before TLS has them, and
// no packets. Those that are lost TCP repeats unseen.
func (l *link) Stats() carrier.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.past
	for s := range l.sockets {
		s.raw.count(&all)
	}
	return all
}

// count adds what c has carried to all.
func (c *rawConn) count(all *carrier.Stats) {
	all.BytesSent += c.sent.Load()
	all.BytesReceived += c.received.Load()
}

// reserve keeps a place for a socket that is being upgraded: whoever is over the
// limit must hear that before there is a socket, whose end would be the link's.
// settle fills it, release gives it back.
func (l *link) reserve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || len(l.sockets)+l.coming >= maxSockets {
		return false
	}
	l.coming++
	return true
}

func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.coming--
}

// Open returns the first socket, and afterwards dials one more each time, with
// the secret that belongs to this tunnel. Only the agent opens.
func (l *link) Open(ctx context.Context) (carrier.Stream, error) {
	l.mu.Lock()
	first, secret, err := l.first, l.secret, l.err
	l.first = nil
	l.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case first != nil:
		return first, nil
	case l.dial == nil || len(secret) == 0:
		return nil, protocol.Errorf(protocol.KindUnsupported, "wsslink: no further streams here")
	}
	s, err := l.dial(ctx, secret)
	if err != nil {
		return nil, err
	}
	if err := l.add(s); err != nil {
		s.raw.Close()
		return nil, err
	}
	return s, nil
}

// Accept returns the next socket that the agent opened.
func (l *link) Accept(ctx context.Context) (carrier.Stream, error) {
	select {
	case s := <-l.incoming:
		return s, nil
	case <-l.done:
		return nil, l.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close tells the peer the kind and message of e on every socket.
func (l *link) Close(e *protocol.Error) {
	reason := e.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	l.end(e, kindCloseCode+int(e.Kind), reason)
}

// end makes the link over, once, and closes its sockets. A socket that takes
// nothing holds that up for closingTime.
func (l *link) end(err error, code int, reason string) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	sockets := make([]*socket, 0, len(l.sockets))
	for s := range l.sockets {
		sockets = append(sockets, s)
	}
	secret := l.secret
	l.mu.Unlock()
	if l.listener != nil {
		l.listener.forget(l, secret)
	}
	close(l.done)
	for _, s := range sockets { // all at once: the writes that wait end together
		s.leave()
	}
	var bidding sync.WaitGroup
	for _, s := range sockets { // or what takes nothing would leave the others no time
		bidding.Go(func() { s.bid(code, reason) })
	}
	bidding.Wait()
}

// lost ends the link, one of whose sockets is gone.
func (l *link) lost(err error) {
	e := protocol.AsError(err)
	reason := e.Kind.Text() // what the other end said is not said back
	l.end(err, kindCloseCode+int(e.Kind), reason)
}

func (l *link) Done() <-chan struct{} { return l.done }

func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Exporter returns keying material of the first socket's TLS connection, none
// where that ends before the relay.
func (l *link) Exporter() ([]byte, error) { return l.exporter, nil }

func (l *link) RemoteAddr() net.Addr { return l.remote }

// Carrier implements carrier.Named.
func (l *link) Carrier() string { return Name }

// Secret implements carrier.Joiner: from now on the relay takes sockets with
// this secret into the link.
func (l *link) Secret() []byte {
	if l.listener == nil {
		return nil
	}
	return l.listener.remember(l)
}

// Join implements carrier.Joiner.
func (l *link) Join(secret []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secret = secret
}
