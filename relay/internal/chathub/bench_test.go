package chathub

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A countingConn is a socket that counts the bytes it gets.
type countingConn struct {
	bytes atomic.Int64
	wrote func() // after each write
}

func (c *countingConn) WriteFrames(frames net.Buffers) error {
	n := 0
	for _, b := range frames {
		n += len(b)
	}
	c.bytes.Add(int64(n))
	if c.wrote != nil {
		c.wrote()
	}
	return nil
}

func (c *countingConn) Ping() error          { return nil }
func (c *countingConn) Answered() uint64     { return 0 }
func (c *countingConn) LastHeard() time.Time { return time.Now() }
func (c *countingConn) Close(int, string)    {}

// attend has a socket follow a conversation of a hub, without an agent, and
// returns its end.
func attend(tb testing.TB, h *hub, conn Conn) (stop func()) {
	tb.Helper()
	s := newSocket(h.set, conn, Guest{Grant: &jws.Grant{Subject: "usr_alice", ID: "gr_alice"}, Token: "token", Session: testSession}, h.set.nextID())
	f := newFollower(s, h, h.set.nextID(), s.grant.Load(), "token")
	f.spot.cursor.Begin(0, true)
	served := make(chan struct{})
	go func() { // stop waits for it
		defer close(served)
		s.writer.serve(s.life)
	}()
	return func() {
		s.life.End()
		<-served
	}
}

// attended is attend for a number of sockets, each of which has got its ack.
func attended(tb testing.TB, h *hub, n int, wrote func()) {
	tb.Helper()
	var acks sync.WaitGroup
	for range n {
		acks.Add(1)
		conn, first := &countingConn{}, true
		conn.wrote = func() {
			if first {
				first = false
				acks.Done()
			} else {
				wrote()
			}
		}
		tb.Cleanup(attend(tb, h, conn))
	}
	acks.Wait()
}

// awake returns a hub whose ring has begun.
func awake(tb testing.TB) *hub {
	h, _ := still(tb)
	h.ring.Opened(protocol.ChatOpened{Epoch: 1, FirstSeq: 1, From: 1, State: protocol.ChatState{Run: protocol.RunRunning, BeganAt: 1}})
	return h
}

// BenchmarkEvent: an event comes from the agent, and is written to five sockets.
func BenchmarkEvent(b *testing.B) {
	h := awake(b)
	var done sync.WaitGroup
	attended(b, h, 5, done.Done)
	r := reader{hub: h, link: &link{}}
	events := make([][]byte, 1000)
	for i := range events {
		events[i] = []byte(text(convA, uint64(i+1)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		done.Add(5)
		if err := r.take(protocol.Chat{Seq: uint64(i + 1), Bytes: events[i%len(events)]}); err != nil {
			b.Fatal(err)
		}
		h.ring.Deliver()
		done.Wait()
	}
}

// BenchmarkConversations: 200 conversations with 5 sockets each get 4 events a
// second, for 3 s; how long an event takes to all sockets.
func BenchmarkConversations(b *testing.B) {
	for b.Loop() {
		var mu sync.Mutex
		var took []time.Duration
		var running sync.WaitGroup
		for i := range 200 {
			h := awake(b)
			var left atomic.Int64
			var came atomic.Int64
			attended(b, h, 5, func() {
				if left.Add(-1) == 0 {
					mu.Lock()
					took = append(took, time.Duration(time.Now().UnixNano()-came.Load()))
					mu.Unlock()
				}
			})
			running.Go(func() {
				r := reader{hub: h, link: &link{}}
				<-time.After(time.Duration(i) * time.Millisecond)
				tick := time.NewTicker(250 * time.Millisecond)
				defer tick.Stop()
				for seq := range uint64(12) {
					left.Store(5)
					came.Store(time.Now().UnixNano())
					if err := r.take(protocol.Chat{Seq: seq + 1, Bytes: []byte(text(convA, seq+1))}); err != nil {
						b.Error(err)
					}
					h.ring.Deliver()
					<-tick.C
				}
			})
		}
		running.Wait()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		b.ReportMetric(float64(200*12-len(took)), "lost")
	}
}

// BenchmarkReplay: 5,000 events to a socket that has seen none, of the ring and of
// the agent's log.
func BenchmarkReplay(b *testing.B) {
	for name, running := range map[string]bool{"ring": true, "log": false} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			l := w.agent.has(convA, 1)
			if running {
				w.agent.becomes(l, protocol.RunRunning, "cmd_1")
			}
			for range 5000 {
				w.agent.prints(l)
			}
			warm := w.join(bob)
			warm.follow(convA, 5001)
			warm.acked(convA, 5001, false)
			for b.Loop() {
				x := &countingConn{}
				var all atomic.Int64
				done := make(chan struct{})
				x.wrote = func() {
					if x.bytes.Load() > all.Load() && all.Swap(1<<62) < 1<<62 {
						close(done)
					}
				}
				size := int64(0)
				for seq := uint64(2); seq <= 5001; seq++ {
					size += int64(len(text(convA, seq)) + 2)
				}
				all.Store(size)
				grant, token := w.authority.Grant(carol)
				s, err := w.set.Socket(x, Guest{Grant: grant, Token: token, Session: testSession})
				if err != nil {
					b.Fatal(err)
				}
				served := make(chan struct{})
				go func() {
					defer close(served)
					s.Serve(b.Context())
				}()
				s.Follow(b.Context(), chatsocket.Mark{SessionID: convA, LastSeq: 1})
				<-done
				s.Close(protocol.KindEnded, "")
				<-served
			}
		})
	}
}

// TestIdleSocketMemory: what one more socket that follows a conversation takes,
// beside its connection and its reader.
func TestIdleSocketMemory(t *testing.T) {
	const n, most = 1000, 24 << 10
	h := awake(t)
	used := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := used()
	attended(t, h, n, func() {})
	each := (int64(used()) - int64(before)) / n
	t.Log(fmt.Sprintf("%d bytes", each))
	if each > most {
		t.Errorf("%d bytes for each socket, at most %d", each, most)
	}
}
