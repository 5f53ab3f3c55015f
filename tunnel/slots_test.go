package tunnel

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// The address with the most gives way, though another has an older slot; alone
// it keeps what carries something.
func TestWhoGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(last byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, last}), 32) }
		var gone []byte
		p := newSlots(4)
		enter := func(last byte) *connectSlot { return p.enter(at(last), func() { gone = append(gone, last) }) }
		enter(1)
		time.Sleep(time.Hour)
		for range 3 {
			enter(2)
			time.Sleep(time.Millisecond)
		}
		if enter(2) != nil {
			t.Error("an address has more, though all it has carries something")
		}
		enter(3)
		synctest.Wait()
		if len(gone) != 1 || gone[0] != 2 {
			t.Errorf("%v gave way to 3", gone)
		}
		if enter(1) != nil || enter(3) != nil {
			t.Error("who has as many gets one that carried something just now")
		}
		time.Sleep(connectIdle)
		if enter(2) == nil {
			t.Error("none of the idle ones gave way")
		}
	})
}
