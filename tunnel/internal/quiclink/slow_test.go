package quiclink

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fairlead/fairlead/protocol"
)

// A deaf socket hears nothing of what it is sent, or only that it must prove
// its address.
type deaf struct {
	net.PacketConn
	retries *atomic.Int64
	proves  bool
}

func (d *deaf) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := d.PacketConn.ReadFrom(p)
		if err != nil {
			return n, from, err
		}
		if n == 0 || p[0]&0xf0 != 0xf0 { // RFC 9000 §17.2.5: a long header of type 3
			continue
		}
		if d.retries.Add(1); d.proves {
			return n, from, err
		}
	}
}

// Handshakes that are begun and not finished must prove their address soon, and
// don't hold up whoever finishes one.
func TestCase01SlowHandshakes(t *testing.T) {
	const slow = 500
	config, pool := certificate(t)
	r := start(t, loopback(t), config)
	defer r.kill()
	ctx, cancel := context.WithCancel(t.Context())
	quicConfig := &quic.Config{HandshakeIdleTimeout: 5 * time.Minute} // none of them gives up
	var retries atomic.Int64
	var dialling sync.WaitGroup
	defer dialling.Wait()
	defer cancel()
	for i := range slow {
		socket, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		transport := &quic.Transport{Conn: &deaf{socket, &retries, i%2 == 0}}
		dialling.Go(func() {
			conn, err := transport.Dial(ctx, r.listener.Addr(), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{protocol.ALPN}}, quicConfig)
			if err == nil {
				t.Error("a deaf socket has connected")
				conn.CloseWithError(0, "")
			}
			transport.Close()
			socket.Close()
		})
	}
	for end := time.Now().Add(time.Minute); retries.Load() < slow/2 && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
	}
	if n := retries.Load(); n < slow/2 {
		t.Errorf("only %d of %d had to prove their address", n, slow)
	}
	var took []time.Duration
	for range 10 {
		began := time.Now()
		within, done := context.WithTimeout(t.Context(), time.Minute)
		conn, err := Dial(within, r.listener.Addr().String(), &tls.Config{RootCAs: pool})
		must(t, err)
		accepted, err := r.listener.Accept(within)
		done()
		must(t, err)
		took = append(took, time.Since(began))
		conn.Close(protocol.Errorf(protocol.KindUnavailable, "done"))
		<-accepted.Done()
	}
	slices.Sort(took)
	// Who is held up waits until the relay gives the slow ones up.
	if median := took[len(took)/2]; median >= protocol.HandshakeTimeout {
		t.Errorf("legitimate dials took %v", took)
	}
	t.Logf("dials took %v; %d Retry packets", took, retries.Load())
}
