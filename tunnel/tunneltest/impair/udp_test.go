package impair

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// echoUDP serves an address that sends back what it gets, and returns whom it
// hears.
func echoUDP(t testing.TB) (addr string, from <-chan netip.AddrPort) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	must(t, prepare(conn))
	heard := make(chan netip.AddrPort, 4096)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf, control := make([]byte, maxRead), make([]byte, 64)
		for {
			n, nc, _, from, err := conn.ReadMsgUDPAddrPort(buf, control)
			if err != nil {
				return
			}
			select {
			case heard <- from:
			default:
			}
			_ = write(conn, from, buf[:n], segmentOf(control[:nc], n))
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr().String(), heard
}

func listenUDP(t testing.TB, target, profile string) *UDP {
	t.Helper()
	p, err := Parse(profile)
	must(t, err)
	u, err := ListenUDP(UDPConfig{Target: target, Seed: 1, Profile: p})
	must(t, err)
	t.Cleanup(func() { must(t, u.Close()) })
	return u
}

func dialUDP(t testing.TB, u *UDP) *net.UDPConn {
	t.Helper()
	conn, err := net.Dial("udp", u.Addr())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.UDPConn)
}

// exchange sends numbered datagrams and returns the numbers that come back,
// until all has.
func exchange(t testing.TB, conn *net.UDPConn, n int, all func(back int) bool) []int {
	t.Helper()
	for i := range n {
		_, err := conn.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
		must(t, err)
	}
	var back []int
	buf := make([]byte, 16)
	for began := time.Now(); ; {
		must(t, conn.SetReadDeadline(time.Now().Add(10*ms)))
		k, err := conn.Read(buf)
		switch {
		case err == nil:
			back = append(back, int(binary.BigEndian.Uint32(buf[:k])))
		case all(len(back)):
			return back
		case time.Since(began) > time.Minute:
			t.Fatalf("%d came back in time", len(back))
		}
	}
}

func number(n int) func(int) bool { return func(back int) bool { return back == n } }

func TestUDPDoesNothing(t *testing.T) {
	target, _ := echoUDP(t)
	u := listenUDP(t, target, "none")
	for i, k := range exchange(t, dialUDP(t, u), 100, number(100)) {
		if i != k {
			t.Fatalf("number %d came back as the %d.", k, i)
		}
	}
	if c := u.Counts(); c.Up.Passed != 100 || c.Down.Passed != 100 || c.Peers != 1 {
		t.Errorf("%+v", c)
	}
}

func TestUDPDelays(t *testing.T) {
	target, _ := echoUDP(t)
	u := listenUDP(t, target, "up.delay=5ms,down.delay=10ms")
	conn := dialUDP(t, u)
	began := time.Now()
	_, err := conn.Write(make([]byte, 4))
	must(t, err)
	must(t, conn.SetReadDeadline(began.Add(time.Minute)))
	_, err = conn.Read(make([]byte, 4))
	must(t, err)
	if took := time.Since(began); took < 15*ms-2*slack {
		t.Errorf("it came back after %v", took)
	}
	if c := u.Counts(); c.Up.Late.Max > time.Minute {
		t.Errorf("%+v", c)
	}
}

// TestUDPHasChance: what is lost, doubled or held back is counted, and nothing
// else comes or doesn't.
func TestUDPHasChance(t *testing.T) {
	target, _ := echoUDP(t)
	u := listenUDP(t, target, "up.loss=30%,down.duplicate=50%,down.reorder=20%,hold=2ms")
	got := exchange(t, dialUDP(t, u), 200, func(back int) bool {
		c := u.Counts()
		return c.Up.Passed+c.Up.Lost == 200 && c.Down.Passed == c.Up.Passed && int64(back) == c.Down.Passed+c.Down.Duplicated
	})
	c := u.Counts()
	if c.Up.Lost < 30 || c.Up.Lost > 90 || c.Down.Duplicated < 40 || c.Down.Reordered < 10 {
		t.Errorf("%+v", c)
	}
	if slices.IsSorted(got) {
		t.Error("they came back in order")
	}
}

func TestUDPBlackhole(t *testing.T) {
	target, _ := echoUDP(t)
	u := listenUDP(t, target, "")
	conn := dialUDP(t, u)
	for _, side := range []Side{Up, Down, Duplex} {
		before := u.Counts()
		u.Blackhole(side, true)
		exchange(t, conn, 3, func(back int) bool {
			c := u.Counts()
			return back == 0 && c.Up.Blackholed+c.Down.Blackholed == before.Up.Blackholed+before.Down.Blackholed+3
		})
		u.Blackhole(side, false)
		exchange(t, conn, 3, number(3))
	}
	if c := u.Counts(); c.Up.Blackholed != 6 || c.Down.Blackholed != 3 {
		t.Errorf("%+v", c)
	}
}

func TestUDPRebind(t *testing.T) {
	target, from := echoUDP(t)
	u := listenUDP(t, target, "")
	conn := dialUDP(t, u)
	exchange(t, conn, 1, number(1))
	n, err := u.Rebind()
	must(t, err)
	exchange(t, conn, 1, number(1))
	if first, second := <-from, <-from; n != 1 || first == second {
		t.Errorf("%d peers; %v, then %v", n, first, second)
	}
}

// TestUDPTargetComesBack: what is sent while nobody listens is lost, and no
// more than that.
func TestUDPTargetComesBack(t *testing.T) {
	listener, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	addr := listener.LocalAddr().(*net.UDPAddr)
	must(t, listener.Close())
	u := listenUDP(t, addr.String(), "")
	conn := dialUDP(t, u)
	exchange(t, conn, 3, func(back int) bool { return back == 0 && u.Counts().Up.Passed == 3 })
	listener, err = net.ListenUDP("udp", addr)
	must(t, err)
	defer listener.Close()
	_, err = conn.Write([]byte("now"))
	must(t, err)
	must(t, listener.SetReadDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, 16)
	if n, err := listener.Read(buf); err != nil || string(buf[:n]) != "now" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// TestTrains: datagrams that were written at once are decided on one by one.
func TestTrains(t *testing.T) {
	target, _ := echoUDP(t)
	u := listenUDP(t, target, "up.loss=20%,delay=1ms")
	conn := dialUDP(t, u)
	data := make([]byte, 0, 40*8)
	for i := range uint64(40) {
		data = binary.BigEndian.AppendUint64(data, i<<32) // exchange reads the upper half
	}
	must(t, write(conn, noAddr, data[:len(data)-4], 8))
	got := exchange(t, conn, 0, func(back int) bool {
		c := u.Counts()
		return c.Up.Received == 40 && int64(back) == c.Up.Passed
	})
	if !slices.IsSorted(got) || len(got) == 40 || len(got) < 20 {
		t.Errorf("%v came back", got)
	}
}

func TestUDPClosed(t *testing.T) {
	u, err := ListenUDP(UDPConfig{Target: "127.0.0.1:1"})
	must(t, err)
	must(t, u.Close())
	if _, err := u.Rebind(); err == nil {
		t.Error("a closed link has peers")
	}
	for _, cfg := range []UDPConfig{
		{Target: "127.0.0.1"}, {Target: "127.0.0.1:1", Listen: "x"}, {Target: "127.0.0.1:1", Profile: Both(Path{Loss: 2})},
	} {
		if _, err := ListenUDP(cfg); err == nil {
			t.Errorf("%+v is a link", cfg)
		}
	}
}

// TestEvict: the peer that has been silent for longest makes room, if that is
// long enough.
func TestEvict(t *testing.T) {
	target, _ := echoUDP(t)
	u := listenUDP(t, target, "")
	for range 3 {
		exchange(t, dialUDP(t, u), 1, number(1))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.evict(time.Now())
	if len(u.peers) != 3 {
		t.Fatalf("%d peers are left of 3 that just spoke", len(u.peers))
	}
	var oldest *peer
	for _, p := range u.peers {
		oldest = p
	}
	oldest.last = time.Now().Add(-leastIdle / 2)
	u.evict(time.Now().Add(leastIdle - time.Second))
	if _, still := u.peers[oldest.addr]; still || len(u.peers) != 2 {
		t.Errorf("%d peers are left", len(u.peers))
	}
}
