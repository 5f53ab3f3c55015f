// Package wsslink carries tunnels over WebSockets, for networks that block
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
	// Path is where a relay accepts these WebSockets.
	Path = "/tunnel"
	// Subprotocol names version 1 of their content.
	Subprotocol = "fairlead.1"
	// Name is this carrier's name.
	Name = "websocket"

	// exporterHeader says that the TLS connection ends in front of the relay.
	exporterHeader = "Fairlead-Exporter"
	exporterNone   = "none"

	exporterLabel = "EXPORTER-fairlead"
	exporterBytes = 32

	// maxSockets bounds the sockets of one connection: the control stream and
	// its lanes.
	maxSockets = 16
	// maxMessage bounds a message in bytes: it fits one write into a lane plus
	// yamux's header.
	maxMessage = protocol.MaxStreamWrite + 512
	// maxWrite bounds a single write in bytes; longer ones are split.
	maxWrite = 4 * maxMessage
	// maxReason bounds the reason of a close in bytes.
	maxReason = 120
	// kindCloseCode plus a kind is the code of a close.
	kindCloseCode = 4000
	// closingTime is how long a socket may take to send why it closes, and
	// leavingTime how long the other end gets to close it.
	closingTime = 200 * time.Millisecond
	leavingTime = time.Second
)

// errClosed ends a stream that this end closed.
var errClosed = errors.New("wsslink: stream closed")

// A link is a group of WebSockets as a carrier. If one of them is lost without
// having been closed as a stream, the link ends: what it carried can't
// continue.
type link struct {
	// Static after construction.
	exporter []byte
	remote   net.Addr
	opener   *socket // the first
	done     chan struct{}
	incoming chan *socket // at the relay: not accepted yet

	dial     func(ctx context.Context, secret []byte) (*socket, error) // at the agent
	listener *Listener                                                 // at the relay

	// Guarded by mu.
	mu      sync.Mutex
	first   *socket // at the agent: the socket that Open returns first
	secret  []byte
	sockets map[*socket]struct{}
	coming  int           // at the relay: number of sockets being upgraded
	past    carrier.Stats // of removed sockets
	err     error         // why the link is over
}

func newLink(exporter []byte, remote net.Addr) *link {
	return &link{
		exporter: exporter, remote: remote, done: make(chan struct{}),
		incoming: make(chan *socket, maxSockets), sockets: map[*socket]struct{}{},
	}
}

// add makes s a socket of the link and starts reading. It fails if the link is
// over or full.
func (l *link) add(s *socket) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addLocked(s)
}

// settle is add for a socket with a reserved slot.
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

// remove removes a closed socket.
func (l *link) remove(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.sockets[s]; there {
		delete(l.sockets, s)
		s.raw.count(&l.past)
	}
}

// Stats implements carrier.Counting: bytes of frames, before TLS, and no
// packets. TCP repeats lost ones invisibly.
func (l *link) Stats() carrier.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.past
	for s := range l.sockets {
		s.raw.count(&all)
	}
	return all
}

// count adds c's traffic to all.
func (c *rawConn) count(all *carrier.Stats) {
	all.BytesSent += c.sent.Load()
	all.BytesReceived += c.received.Load()
}

// reserve reserves a slot for a socket that is being upgraded. The limit must
// be checked before there is a socket, as the end of one would end the link.
// settle fills the slot, release gives it back.
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

// Open returns the first socket, and afterwards dials a new one each time, with
// this tunnel's secret. Only the agent opens.
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

// Accept returns the agent's next socket.
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

// Close sends e's kind and message on every socket.
func (l *link) Close(e *protocol.Error) {
	reason := e.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	l.end(e, kindCloseCode+int(e.Kind), reason)
}

// end ends the link, once, and closes its sockets. A socket whose peer doesn't
// read delays that by closingTime.
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
	for _, s := range sockets { // at once, so that blocked writes end together
		s.leave()
	}
	var bidding sync.WaitGroup
	for _, s := range sockets { // at once, so that a blocked one takes no time from the others
		bidding.Go(func() { s.bid(code, reason) })
	}
	bidding.Wait()
}

// lost ends the link after the loss of a socket.
func (l *link) lost(err error) {
	e := protocol.AsError(err)
	reason := e.Kind.Text() // without quoting the other end
	l.end(err, kindCloseCode+int(e.Kind), reason)
}

func (l *link) Done() <-chan struct{} { return l.done }

func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Exporter returns keying material of the first socket's TLS connection, none
// if TLS ends in front of the relay.
func (l *link) Exporter() ([]byte, error) { return l.exporter, nil }

func (l *link) RemoteAddr() net.Addr { return l.remote }

// Carrier implements carrier.Named.
func (l *link) Carrier() string { return Name }

// Secret implements carrier.Joiner: from now on the relay accepts sockets with
// this secret for the link.
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
