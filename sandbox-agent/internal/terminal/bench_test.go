package terminal

import (
	"io"
	"log/slog"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// BenchmarkEcho types a byte into cat and waits until it is back: through a
// terminal and its attachment, and on the bare PTY.
func BenchmarkEcho(b *testing.B) {
	program := unechoed("echo up; exec cat")
	b.Run("terminal", func(b *testing.B) {
		u := sitDown(b, realHost(b, IsolationNone), program)
		u.expect("up\n")
		key := protocol.Input{Term: u.term, Client: "c", Bytes: []byte("x")}
		for b.Loop() {
			key.Seq++
			u.Input(key)
			for echoed := false; !echoed; {
				m, err := u.Next(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				_, echoed = m.(protocol.Data)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		h := realHost(b, IsolationNone)
		l, err := h.plan(session, "pty_1", program)
		if err != nil {
			b.Fatal(err)
		}
		l.account = account{uid: -1}
		dev, proc, err := launchPTY(l)
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 16)
		if _, err := io.ReadFull(dev, buf[:3]); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if n, err := dev.Offer([]byte("x")); n != 1 || err != nil {
				b.Fatal(n, err)
			}
			if _, err := dev.Read(buf); err != nil {
				b.Fatal(err)
			}
		}
		dev.Close()
		proc.Wait()
	})
}

// BenchmarkOutput takes a flood of output through a terminal.
func BenchmarkOutput(b *testing.B) {
	const size = 32 << 20
	h := realHost(b, IsolationNone)
	b.SetBytes(size)
	for b.Loop() {
		u := sitDown(b, h, unechoed("head -c 33554432 /dev/zero"))
		for u.exited == nil {
			m, err := u.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if e, ok := m.(protocol.Exited); ok {
				u.exited = &e
			}
		}
	}
}

// BenchmarkKey types a key into a terminal whose program takes it at once, and
// takes the ack.
func BenchmarkKey(b *testing.B) {
	dev, proc := newFakeDevice(), newFakeProcess()
	dev.room = 1 << 60
	term := newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 80, Rows: 24}, newProgram(dev, proc), site{}, slog.New(slog.DiscardHandler))
	v := attach(b, term, nil)
	key := protocol.Input{Term: v.propose(alice).Lease.Term, Client: "c", Bytes: []byte("x")}
	b.ReportAllocs()
	for b.Loop() {
		key.Seq++
		v.Input(key)
		if m, err := v.poll(); m == nil || err != nil {
			b.Fatal(m, err)
		}
	}
	dev.Close()
	term.own.reader.Wait()
}
