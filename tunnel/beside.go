package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
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

// open opens a connection, whose stream begins with preface.
func (b *beside) open(ctx context.Context, preface []byte) (carrier.Stream, error) {
	if !b.try(time.Now()) {
		return nil, errVain
	}
	ctx, cancel := context.WithTimeout(ctx, besideTime)
	defer cancel()
	stream, err := wsslink.DialBeside(ctx, b.addr, b.at, b.tls, b.secret)
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
