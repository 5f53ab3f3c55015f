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
	answers *answers
	proves  bool

	answered bool // owned by who reads
}

// answers counts the first answers to deaf sockets: a Retry packet, or the
// handshake of a relay that doesn't ask for proof.
type answers struct{ retries, free atomic.Int64 }

func (d *deaf) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := d.PacketConn.ReadFrom(p)
		if err != nil {
			return n, from, err
		}
		retry := n > 0 && p[0]&0xf0 == 0xf0 // RFC 9000 §17.2.5: a long header of type 3
		switch {
		case d.answered:
		case retry:
			d.answers.retries.Add(1)
		default:
			d.answers.free.Add(1)
		}
		if d.answered = true; retry && d.proves {
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
	var first answers
	opened := time.Now()
	var dialling sync.WaitGroup
	defer dialling.Wait()
	defer cancel()
	for i := range slow {
		socket, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		transport := &quic.Transport{Conn: &deaf{PacketConn: socket, answers: &first, proves: i%2 == 0}}
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
	// The kernel drops packets of a busy machine, and who repeats one waits ever longer.
	for end := time.Now().Add(2 * time.Minute); first.retries.Load()+first.free.Load() < slow*9/10; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d had to prove their address, %d had not: nobody answers the rest", first.retries.Load(), slow, first.free.Load())
		}
		<-time.After(10 * time.Millisecond)
	}
	// The slower the machine, the fewer begin in the same second.
	elapsed := time.Since(opened)
	allowed := freeHandshakeBurst + int64(freeHandshakesPerSecond*elapsed.Seconds()) + 1
	if n := first.free.Load(); n > allowed {
		t.Errorf("%d of %d had not to prove their address within %v, at most %d may", n, slow, elapsed, allowed)
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
	t.Logf("dials took %v; %d of %d had to prove their address within %v", took, first.retries.Load(), slow, elapsed)
}
