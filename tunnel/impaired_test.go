package tunnel_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

var (
	lossyFor  = flag.Duration("tunnel.lossy", 3*time.Second, "how long TestCase16 sends; 10m is the full time")
	lossySeed = flag.Uint64("tunnel.seed", 0, "decides what the networks of TestCase15 and TestCase16 do (0: another one each time)")
)

// chance returns the seed of a test and prints it.
func chance(t *testing.T) uint64 {
	seed := *lossySeed
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("-tunnel.seed=%d", seed)
	return seed
}

// impaired returns the ends of a tunnel over QUIC, and the network between
// them, which does nothing yet.
func impaired(t testing.TB, seed uint64) (agent, relay *tunnel.Session, network *impair.UDP) {
	t.Helper()
	listener, pool := listen(t, nil)
	network, err := impair.ListenUDP(impair.UDPConfig{Target: listener.Addr().String(), Seed: seed})
	must(t, err)
	t.Cleanup(func() { must(t, network.Close()) })
	agent, err = tunnel.Dial(within(t), tunnel.DialConfig{
		Addr: network.Addr(), TLS: &tls.Config{RootCAs: pool}, Carriers: []tunnel.Carrier{tunnel.CarrierQUIC},
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
	})
	must(t, err)
	t.Cleanup(func() { agent.Close() })
	relay, err = listener.Accept(within(t))
	must(t, err)
	t.Cleanup(func() { relay.Close() })
	return agent, relay, network
}

// A flow is random bytes on one stream, in one direction.
type flow struct {
	name     string
	from, to *tunnel.Stream
	seed     uint64
}

// flowLanes are the lanes of flows.
var flowLanes = []protocol.Lane{protocol.LaneControl, protocol.LaneTerminal0, protocol.LaneTerminal1}

// flows opens a stream on each of some lanes, and returns both directions of
// each.
func flows(t *testing.T, agent, relay *tunnel.Session, seed uint64) []flow {
	t.Helper()
	var list []flow
	for i, lane := range flowLanes {
		far, near := streamPair(t, agent, relay, lane)
		seed := seed + 2*uint64(i)
		list = append(list, flow{fmt.Sprintf("%s up", lane), far, near, seed}, flow{fmt.Sprintf("%s down", lane), near, far, seed + 1})
	}
	return list
}

// streamPair returns the ends of a stream that the relay opens.
func streamPair(t *testing.T, agent, relay *tunnel.Session, lane protocol.Lane) (far, near *tunnel.Stream) {
	t.Helper()
	accepted := make(chan *tunnel.Stream, 1)
	go func() { // ends with the stream, or the session
		in, err := agent.Accept(context.Background())
		if err != nil {
			return
		}
		if s, err := in.Accept(protocol.Opened{}); err == nil {
			accepted <- s
		}
	}()
	near, _, err := relay.Open(within(t), lane, protocol.Open{Kind: protocol.StreamTerminal})
	must(t, err)
	return <-accepted, near
}

// run writes until stop is closed and reads to the end. What arrives must be
// what was written.
func (f flow) run(stop <-chan struct{}) (n int64, err error) {
	written := make(chan error, 1)
	sent, got := sha256.New(), sha256.New()
	go func() { // awaited below
		source := rand.NewChaCha8([32]byte(bytes.Repeat([]byte{byte(f.seed)}, 32)))
		chunk := make([]byte, 4096)
		for {
			select {
			case <-stop:
				written <- f.from.CloseWrite()
				return
			default:
			}
			source.Read(chunk)
			sent.Write(chunk)
			if _, err := f.from.Write(chunk); err != nil {
				written <- err
				return
			}
		}
	}()
	n, err = io.Copy(got, f.to)
	if err := errors.Join(err, <-written); err != nil {
		return n, fmt.Errorf("%s after %d bytes: %w", f.name, n, err)
	}
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		return n, fmt.Errorf("%s: %d bytes arrived that are not what was sent", f.name, n)
	}
	return n, nil
}

// runAll runs flows at the same time, while meanwhile runs.
func runAll(t *testing.T, list []flow, meanwhile func()) (bytes int64) {
	t.Helper()
	type result struct {
		n   int64
		err error
	}
	results, stop := make(chan result, len(list)), make(chan struct{})
	for _, f := range list {
		go func() { // awaited below
			n, err := f.run(stop)
			results <- result{n, err}
		}()
	}
	meanwhile()
	close(stop)
	for range list {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		if r.n == 0 {
			t.Error("a flow carried nothing")
		}
		bytes += r.n
	}
	return bytes
}
