package tunnel_test

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// A farConn is a carrier over a path on which some things take a round trip
// longer, as when a packet is lost and sent again.
type farConn struct {
	*tunneltest.Conn
	way  time.Duration // in each direction
	seed uint64
	dark <-chan struct{} // closed when nothing gets through any more
}

func (c *farConn) Open(ctx context.Context) (carrier.Stream, error) {
	far, err := c.Conn.Open(ctx)
	if err != nil {
		return nil, err
	}
	near, mine := net.Pipe()
	context.AfterFunc(c.life(), func() { mine.Close() })
	go c.carry(mine, far, rand.New(rand.NewPCG(c.seed, 1))) // ends with the connection
	go c.carry(far, mine, rand.New(rand.NewPCG(c.seed, 2))) // ends with the connection
	return near, nil
}

// life returns a context that ends with the connection.
func (c *farConn) life() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the connection
		<-c.Done()
		cancel()
	}()
	return ctx
}

// carry copies with delay, in order.
func (c *farConn) carry(to, from carrier.Stream, random *rand.Rand) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1000)
	go func() { // ends when from does
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			select {
			case <-c.dark:
				continue
			default:
			}
			if _, err := to.Write(p.data); err != nil {
				return
			}
		}
	}()
	defer close(pieces)
	for {
		data := make([]byte, 4096)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		delay := c.way
		if random.IntN(20) == 0 {
			delay += 2 * c.way
		}
		pieces <- piece{time.Now().Add(delay), data[:n]}
	}
}

// A path of 1 s isn't taken for a dead one, watched or not, and a dead one is
// noticed there too.
func TestCase10LongPath(t *testing.T) {
	for _, watched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, far := tunneltest.Conns()
			dark := make(chan struct{})
			const seed = 10
			agent, relay := register(t, &farConn{near, 500 * time.Millisecond, seed, dark}, far, nil)
			relay.SetWatched(watched)
			time.Sleep(time.Hour)
			if agent.Err() != nil || relay.Err() != nil {
				t.Fatalf("watched %t, seed %d: agent: %v, relay: %v", watched, seed, agent.Err(), relay.Err())
			}
			if rtt := agent.RTT(); rtt < time.Second {
				t.Errorf("RTT %v", rtt)
			}
			close(dark)
			began := time.Now()
			<-agent.Done()
			<-relay.Done()
			if took := time.Since(began); took > protocol.PingIdle+10*time.Second {
				t.Errorf("watched %t: noticed after %v", watched, took)
			}
			agent.Close()
			relay.Close()
			time.Sleep(time.Minute) // what was under way is over
		})
	}
}

// On a path as most are, both ends know within 6 s that it is dead, and within
// 2 s while somebody watches, wherever between two PINGs it dies.
func TestCase10ShortPath(t *testing.T) {
	for _, c := range []struct {
		watched bool
		within  time.Duration
	}{{false, 6 * time.Second}, {true, 2 * time.Second}} {
		for after := range 20 { // tenths of what lies between two PINGs
			synctest.Test(t, func(t *testing.T) {
				near, far := tunneltest.Conns()
				dark := make(chan struct{})
				agent, relay := register(t, &farConn{near, 10 * time.Millisecond, 10, dark}, far, nil)
				relay.SetWatched(c.watched)
				time.Sleep(time.Minute + time.Duration(after)*protocol.PingIdle/10)
				close(dark)
				began := time.Now()
				for _, s := range []*tunnel.Session{agent, relay} {
					<-s.Done()
					if took := time.Since(began); took > c.within {
						t.Errorf("watched %t, dark after %d tenths: noticed after %v", c.watched, after, took)
					}
				}
				agent.Close()
				relay.Close()
				time.Sleep(time.Minute) // what was under way is over
			})
		}
	}
}
