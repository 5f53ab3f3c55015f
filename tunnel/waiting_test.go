package tunnel

import (
	"net"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func at(ip string) net.Addr { return &net.UDPAddr{IP: net.ParseIP(ip), Port: 1} }

// Who waits longest makes room; whoever left is never asked to.
func TestWaitingRoomEvictsTheOldest(t *testing.T) {
	r := newWaitlist(3)
	gone := make(chan int, 10)
	enter := func(i int) *slot {
		return r.enter(at("192.0.2."+string(rune('0'+i))), func(*protocol.Error) { gone <- i })
	}
	enter(0)
	second := enter(1)
	enter(2)
	enter(3)
	if i := <-gone; i != 0 {
		t.Errorf("%d had to go", i)
	}
	second.leave()
	second.leave()
	enter(4) // in its slot
	enter(5)
	if i := <-gone; i != 2 {
		t.Errorf("%d had to go", i)
	}
	if len(r.addresses) != 3 || r.slots.Len() != 3 {
		t.Errorf("%d addresses, %d slots", len(r.addresses), r.slots.Len())
	}
}

// One address can't take all slots: its own oldest makes room. An IPv6 network
// is one address.
func TestWaitingRoomPerAddress(t *testing.T) {
	r := newWaitlist(10 * maxWaitingPerAddress)
	gone := make(chan int, 10)
	r.enter(at("192.0.2.1"), nil)
	for i := range maxWaitingPerAddress {
		ip := net.ParseIP("2001:db8::")
		ip[15] = byte(i)
		r.enter(&net.TCPAddr{IP: ip, Port: i}, func(*protocol.Error) { gone <- i })
	}
	r.enter(at("2001:db8:0:1::1"), nil)
	if len(gone) > 0 {
		t.Errorf("%d had to go for another network", <-gone)
	}
	r.enter(at("2001:db8::ffff"), nil)
	if i := <-gone; i != 0 {
		t.Errorf("%d had to go", i)
	}
	if n := r.slots.Len(); n != maxWaitingPerAddress+2 {
		t.Errorf("%d slots", n)
	}
}
