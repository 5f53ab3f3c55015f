package tunnel_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/mux"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// noStall is a patience that no test outlasts.
const noStall = time.Hour

// stalled opens a stream of a kind whose writer, at the agent, writes until it
// gets an error, which it tells.
func stalled(t *testing.T, relay *tunnel.Session, lane protocol.Lane, kind protocol.StreamKind) *tunnel.Stream {
	t.Helper()
	stream, _, err := relay.Open(within(t), lane, protocol.Open{Kind: kind, Grant: "flood"})
	must(t, err)
	return stream
}

// floodOrEcho serves the streams of an agent: those whose grant is "flood" get
// all the agent can write, and what became of it is told.
func floodOrEcho(t *testing.T, agent *tunnel.Session) (ended chan error) {
	ended = make(chan error, 100)
	answer(t, agent, func(in *tunnel.Incoming, s *tunnel.Stream) {
		if in.Open.Grant != "flood" {
			echo(in, s)
			return
		}
		chunk := make([]byte, protocol.MaxStreamWrite)
		for {
			if _, err := s.Write(chunk); err != nil {
				ended <- err
				return
			}
		}
	})
	return ended
}

// A terminal whose reader stalls doesn't slow another one on its lane down: no
// byte of it is on the way. It is reset when its time is over; the tunnel and
// the others live.
func TestCase08StalledReader(t *testing.T) {
	for _, c := range []struct {
		name string
		pair func(testing.TB) (agent, relay *tunnel.Session)
	}{{"in memory", tunneltest.Pair}, {"over QUIC", quicPair}} {
		t.Run(c.name, func(t *testing.T) {
			const stall = 500 * time.Millisecond
			other, lonely := c.pair(t)
			floodOrEcho(t, other)
			tunnel.Impatient(t, stall, noStall, noStall)
			agent, relay := c.pair(t)
			ended := floodOrEcho(t, agent)
			open := func(s *tunnel.Session) *tunnel.Stream {
				stream, _, err := s.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
				must(t, err)
				return stream
			}
			single, live := open(lonely), open(relay)

			began := time.Now()
			dead := stalled(t, relay, protocol.LaneTerminal0, protocol.StreamTerminal)
			roundTrips(t, 50, live) // the window fills
			medians := roundTrips(t, 200, single, live)
			t.Logf("a round trip alone %v, beside a stalled reader %v", medians[0], medians[1])
			if medians[1] > 3*medians[0]+5*time.Millisecond { // p99, and 1.2, are measured by loadtest, where nothing else runs
				t.Errorf("a round trip of %v became %v", medians[0], medians[1])
			}
			if err := <-ended; !errors.Is(err, mux.ErrStalled) {
				t.Errorf("the writer got %v", err)
			}
			if took := time.Since(began); took < stall || took > time.Minute {
				t.Errorf("reset after %v", took)
			}
			dead.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := io.Copy(io.Discard, dead); err == nil || n > mux.Window {
				t.Errorf("the reader got %d bytes and %v, and took them for whole", n, err)
			}
			must(t, pingPong(live))
			if agent.Err() != nil || relay.Err() != nil {
				t.Errorf("agent: %v, relay: %v", agent.Err(), relay.Err())
			}
		})
	}
}

// roundTrips echoes on streams in turn, so that what else the machine does is
// the same for all, and returns the median of each.
func roundTrips(t *testing.T, n int, streams ...*tunnel.Stream) (medians []time.Duration) {
	t.Helper()
	all := make([][]time.Duration, len(streams))
	for range n {
		for i, s := range streams {
			began := time.Now()
			must(t, pingPong(s))
			all[i] = append(all[i], time.Since(began))
		}
	}
	for _, took := range all {
		slices.Sort(took)
		medians = append(medians, took[n/2])
	}
	return medians
}

// Who writes into a full window is told how often that ended in a reset.
func TestStallIsCounted(t *testing.T) {
	tunnel.Impatient(t, 50*time.Millisecond, noStall, noStall)
	resets := make(chan string, 1)
	near, far := tunneltest.Conns()
	agent, relay := register(t, near, far, &tunnel.Events{Reset: func(reason string) { resets <- reason }})
	answer(t, agent, func(*tunnel.Incoming, *tunnel.Stream) {}) // reads nothing
	stream, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	must(t, err)
	if n, err := stream.Write(make([]byte, 1<<20)); n > mux.Window || n < mux.Window-1<<10 || !errors.Is(err, mux.ErrStalled) {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	if reason := <-resets; reason != string(mux.ResetStalled) || !slices.Contains(tunnel.Resets(), reason) {
		t.Errorf("counted as %q", reason)
	}
	if _, err := stream.Write([]byte("x")); err == nil {
		t.Error("written to a stream that was reset")
	}
}

// register makes a tunnel of the two ends of a carrier, with a relay whose
// events are heard.
func register(t *testing.T, near, far carrier.Conn, events *tunnel.Events) (agent, relay *tunnel.Session) {
	t.Helper()
	admitted := make(chan *tunnel.Session, 1)
	go func() { // received below
		s, _ := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{
			RelayID: "rl_x", Events: events, Admit: func(context.Context, *tunnel.Registration) error { return nil },
		})
		admitted <- s
	}()
	agent, err := tunnel.Register(within(t), near, tunnel.DialConfig{
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
	})
	must(t, err)
	relay = <-admitted
	t.Cleanup(func() {
		agent.Close()
		relay.Close()
	})
	return agent, relay
}

// A reader that is slow and moves is never reset, and neither is one that hands
// on what it reads while whoever gets it takes a break.
func TestSlowReaderIsNotReset(t *testing.T) {
	const stall = 400 * time.Millisecond
	tunnel.Impatient(t, stall, noStall, noStall)
	agent, relay := tunneltest.Pair(t)
	ended := floodOrEcho(t, agent)
	moving := stalled(t, relay, protocol.LaneTerminal0, protocol.StreamTerminal)
	piped := stalled(t, relay, protocol.LaneBulk, protocol.StreamHTTP)
	for !readSlowly(t, moving, stall) { // this machine stood still, and not the reader
		if err := <-ended; !errors.Is(err, mux.ErrStalled) {
			t.Errorf("a writer got %v", err)
		}
		moving = stalled(t, relay, protocol.LaneTerminal0, protocol.StreamTerminal)
	}
	select {
	case err := <-ended:
		t.Errorf("a writer got %v", err)
	default:
	}
	piece := make([]byte, 1)
	var reading sync.WaitGroup
	reading.Go(func() { io.CopyN(io.Discard, piped, 2*mux.Window) })
	reading.Wait()
	if _, err := piped.Read(piece); err != nil {
		t.Errorf("the piped stream: %v", err)
	}
	piped.Close()
}

// readSlowly reads for three stalls, half a window in a quarter of each, which is
// what yamux lets the writer know of, in small pieces. It returns false when the
// stream was reset and that took longer this time.
func readSlowly(t *testing.T, s *tunnel.Stream, stall time.Duration) bool {
	t.Helper()
	piece := make([]byte, 8<<10)
	const pieces = mux.Window / 2 / (8 << 10)
	tick := time.NewTicker(stall / 4 / pieces)
	defer tick.Stop()
	last := slices.Repeat([]time.Time{time.Now()}, pieces) // when the latest ones were read
	for i, end := 0, time.Now().Add(3*stall); time.Now().Before(end); i++ {
		_, err := io.ReadFull(s, piece)
		if err != nil && time.Since(last[i%pieces]) > stall/2 {
			return false
		}
		must(t, err)
		last[i%pieces] = time.Now()
		<-tick.C
	}
	return true
}

// A deadline of the caller's comes before the stall and after it, and a close
// ends a write that waits.
func TestWriteDeadlinesAndStalls(t *testing.T) {
	tunnel.Impatient(t, 300*time.Millisecond, noStall, noStall)
	open := func() *tunnel.Stream {
		agent, relay := tunneltest.Pair(t)
		answer(t, agent, func(*tunnel.Incoming, *tunnel.Stream) {}) // reads nothing
		s, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
		must(t, err)
		return s
	}
	sooner := open()
	sooner.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := sooner.Write(make([]byte, 1<<20)); err == nil || errors.Is(err, mux.ErrStalled) {
		t.Errorf("a deadline ended it with %v", err)
	}
	sooner.SetWriteDeadline(time.Now().Add(time.Hour))
	if _, err := sooner.Write([]byte("x")); !errors.Is(err, mux.ErrStalled) {
		t.Errorf("a later deadline ended it with %v", err)
	}
	tunnel.Impatient(t, noStall, noStall, noStall)
	closed := open()
	wrote := make(chan error)
	go func() { // received below
		_, err := closed.Write(make([]byte, 1<<20))
		wrote <- err
	}()
	<-time.After(20 * time.Millisecond)
	closed.Close()
	if err := <-wrote; err == nil || errors.Is(err, mux.ErrStalled) {
		t.Errorf("a close ended it with %v", err)
	}
}
