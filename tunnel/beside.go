package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/wsslink"
)

const (
	// besideTime bounds the wait for a connection beside the tunnel's.
	besideTime = 2 * time.Second
	// besideLife is how long one must live at the least. One that is lost sooner shows
	// a path on which none is any good.
	besideLife = time.Minute
)

// beside opens connections over TCP that join a tunnel over QUIC: for bulk, since TCP
// takes half of QUIC's processor time for each byte. Where none gets through to the
// same relay, QUIC carries bulk as well.
type beside struct {
	// Static after construction.
	addr   string   // the relay's name
	at     net.Addr // where it is
	tls    *tls.Config
	secret []byte

	// Guarded by mu.
	mu     sync.Mutex
	opened time.Time // the latest one
	vain   bool      // there is no use in trying
}

// errVain says that there is no use in trying.
var errVain = errors.New("tunnel: TCP was of no use beside this tunnel")

// newBeside returns what opens connections beside conn, nil if it shouldn't.
func newBeside(conn carrier.Conn, cfg DialConfig, secret []byte) *beside {
	if carrierOf(conn) != CarrierQUIC || len(secret) == 0 || !cfg.allows(CarrierWebSocket) {
		return nil
	}
	return &beside{addr: cfg.Addr, at: conn.RemoteAddr(), tls: cfg.TLS, secret: secret}
}

// open opens a connection, whose stream begins with preface.
func (b *beside) open(ctx context.Context, preface []byte) (carrier.Stream, error) {
	if !b.try(time.Now()) {
		return nil, errVain
	}
	ctx, cancel := context.WithTimeout(ctx, besideTime)
	defer cancel()
	stream, err := wsslink.Beside(ctx, b.addr, b.at, b.tls, b.secret)
	if err == nil {
		if _, err = stream.Write(preface); err != nil {
			stream.Close()
		}
	}
	b.note(err, time.Now())
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// try reports whether there is use in trying.
func (b *beside) try(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.opened.IsZero() && now.Sub(b.opened) < besideLife {
		b.vain = true // whoever asks again has lost it
	}
	return !b.vain
}

// note notes the result of a try.
func (b *beside) note(err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened, b.vain = now, err != nil
}

// replaceable reports whether another connection may take the lane over.
func (l *lane) replaceable() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.ready:
		return l.loose != nil
	default:
		return false
	}
}

// drop forgets a loose lane that is lost. Its streams fail, and the next one makes
// another.
func (s *Session) drop(l *lane) {
	s.mu.Lock()
	if s.lanes[l.name] == l {
		delete(s.lanes, l.name)
		s.past.Add(l.carried())
	}
	s.mu.Unlock()
	if !s.spawn(func() { l.mux.Close() }) { // it may wait for a moment
		l.mux.Close()
	}
}

// carried returns what a loose lane's own connection has carried.
func (l *lane) carried() carrier.Stats {
	if counting, ok := l.loose.(carrier.Counting); ok {
		return counting.Stats()
	}
	return carrier.Stats{}
}

// allows reports whether c may be dialled.
func (cfg DialConfig) allows(c Carrier) bool {
	order, err := cfg.order()
	return err == nil && slices.Contains(order, c)
}
