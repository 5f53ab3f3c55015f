package quiclink

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestJoinedBursts: whatever is written in a row comes as the datagrams that it is, in
// that order, and what is not a burst doesn't wait.
func TestJoinedBursts(t *testing.T) {
	from, to := loopbackSocket(t, "127.0.0.1"), loopbackSocket(t, "127.0.0.1")
	from.join()
	addr := to.LocalAddr().(*net.UDPAddr)
	var want [][]byte
	for i, burst := range []struct{ datagrams, size, last int }{
		{14, 1452, 1452}, {14, 1452, 1452}, {14, 1452, 1452}, {14, 1452, 1452}, // more than fits
		{14, 1452, 700}, {1, 30, 30}, {8, 1452, 1452}, {8, 1200, 1200}, {2, 1200, 1200}, {9, 1200, 1200}, {1, 1, 1}, {12, 1300, 1300},
	} {
		whole := bytes.Repeat([]byte{byte(i)}, (burst.datagrams-1)*burst.size+burst.last)
		if n, _, err := from.WriteMsgUDP(whole, segmented(burst.size), addr); err != nil || n != len(whole) {
			t.Fatal(n, err)
		}
		for len(whole) > 0 {
			n := min(burst.size, len(whole))
			want = append(want, whole[:n])
			whole = whole[n:]
		}
	}
	to.SetReadDeadline(time.Now().Add(time.Minute))
	messages := batchOf(8)
	for got := 0; got < len(want); {
		n, err := to.ReadBatch(messages, 0)
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, len(want), err)
		}
		for _, m := range messages[:n] {
			if !bytes.Equal(m.Buffers[0][:m.N], want[got]) {
				t.Fatalf("datagram %d: %d bytes of %d, want %d of %d", got, m.N, m.Buffers[0][0], len(want[got]), want[got][0])
			}
			got++
		}
	}
}

// TestJoinedBurstsOfMany: writers at the same time lose nothing.
func TestJoinedBurstsOfMany(t *testing.T) {
	from, to := loopbackSocket(t, "127.0.0.1"), loopbackSocket(t, "127.0.0.1")
	to.SetReadBuffer(4 << 20)
	from.join()
	addr := to.LocalAddr().(*net.UDPAddr)
	const writers, rounds, datagrams, size = 4, 20, 10, 1000
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for range rounds {
				if _, _, err := from.WriteMsgUDP(bytes.Repeat([]byte{byte(w)}, datagrams*size), segmented(size), addr); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	to.SetReadDeadline(time.Now().Add(time.Minute))
	var came [writers]int
	for messages, sum := batchOf(8), 0; sum < writers*rounds*datagrams; {
		n, err := to.ReadBatch(messages, 0)
		if err != nil {
			t.Fatalf("%v came, then %v", came, err)
		}
		for _, m := range messages[:n] {
			came[m.Buffers[0][0]]++
			sum++
		}
	}
	for _, n := range came {
		if n != rounds*datagrams {
			t.Errorf("%v came", came)
		}
	}
}

// TestJoinedBurstFails: who wrote what couldn't be sent is told with the next write;
// that bursts can't be sent at all only with the next burst.
func TestJoinedBurstFails(t *testing.T) {
	from, to := loopbackSocket(t, "127.0.0.1"), loopbackSocket(t, "127.0.0.1")
	from.join()
	addr := to.LocalAddr().(*net.UDPAddr)
	write := func(oob []byte) error {
		_, _, err := from.WriteMsgUDP(make([]byte, 100), oob, addr)
		return err
	}
	for _, c := range []struct {
		failed      error
		one, bursts bool // is told of it
	}{{unix.ECONNREFUSED, true, false}, {unix.EIO, false, true}} {
		from.joins.failed = os.NewSyscallError("sendmsg", c.failed)
		if err := write(nil); errors.Is(err, c.failed) != c.one {
			t.Errorf("%v: one datagram: %v", c.failed, err)
		}
		if err := write(segmented(100)); errors.Is(err, c.failed) != c.bursts {
			t.Errorf("%v: a burst: %v", c.failed, err)
		}
		if err := write(nil); err != nil {
			t.Errorf("%v: afterwards: %v", c.failed, err)
		}
	}
}
