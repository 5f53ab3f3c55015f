package terminal

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A floodDevice is a PTY whose program prints without end, as fast as it is
// read, and takes all input at once.
type floodDevice struct {
	*fakeDevice
	text    []byte
	at      int
	printed atomic.Int64 // bytes
	offered time.Time    // when input last came; owned by the one who types
}

func (d *floodDevice) Read(p []byte) (int, error) {
	select {
	case <-d.closed.c:
		return 0, os.ErrClosed
	default:
	}
	n := 0
	for n < len(p) {
		copied := copy(p[n:], d.text[d.at:])
		n, d.at = n+copied, (d.at+copied)%len(d.text)
	}
	d.printed.Add(int64(n))
	return n, nil
}

func (d *floodDevice) Offer(p []byte) (int, error) {
	d.offered = time.Now()
	return len(p), nil
}

// BenchmarkKeyInFlood types a key about every millisecond while the program
// floods the terminal and a relay takes all it can. It reports how long a key
// waits from its INPUT frame until it is written to the PTY, and how fast the
// flood is parsed and masked meanwhile.
func BenchmarkKeyInFlood(b *testing.B) {
	var text bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&text, "\x1b[3%dm2026-11-21T12:00:%02d.%03dZ\x1b[m INFO request served path=/v1/items/%d status=200 took=%dms\r\n", i%8, i%60, i%1000, i, i%97)
	}
	for _, n := range []int{0, 100} {
		secrets := make([]string, n)
		for i := range secrets {
			secrets[i] = fmt.Sprintf("secret-%08x-of-many", i*0x9e3779b1)
		}
		b.Run(fmt.Sprintf("%dsecrets", n), func(b *testing.B) {
			dev := &floodDevice{fakeDevice: newFakeDevice(), text: text.Bytes()}
			term := newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 200, Rows: 50}, newProgram(dev, newFakeProcess()),
				site{secrets: compile(b, secrets...)}, slog.New(slog.DiscardHandler))
			v := attach(b, term, nil)
			key := protocol.Input{Term: v.take(alice), Client: "c", Bytes: []byte("x")}
			drained := make(chan struct{})
			go func() { // the end of the benchmark waits for it
				defer close(drained)
				for {
					if _, err := v.Next(b.Context()); err != nil {
						return
					}
				}
			}()
			waits := make([]time.Duration, 0, 1<<16)
			every := time.NewTicker(time.Millisecond)
			defer every.Stop()
			printed, begin := dev.printed.Load(), time.Now()
			for b.Loop() {
				<-every.C
				key.Seq++
				typed := time.Now()
				v.Input(key)
				waits = append(waits, dev.offered.Sub(typed))
			}
			rate := float64(dev.printed.Load()-printed) / time.Since(begin).Seconds()
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(waits[len(waits)*99/100].Nanoseconds())/1e3, "p99-µs")
			b.ReportMetric(rate/1e6, "flood-MB/s")
			dev.Close()
			term.own.reader.Wait()
			v.Close()
			<-drained
		})
	}
}

// take makes user the controller in the midst of output, and returns the term.
func (v *viewer) take(user protocol.UserID) uint64 {
	v.t.Helper()
	v.mayControl(user, "gr_take")
	v.Propose(protocol.LeaseProposal{ID: 7, Next: protocol.LeaseNext{Holder: user, GrantID: "gr_take"}})
	for {
		if l, ok := v.next().(protocol.Leased); ok && l.ID == 7 {
			return l.Lease.Term
		}
	}
}
