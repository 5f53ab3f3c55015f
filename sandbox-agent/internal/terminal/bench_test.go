package terminal

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
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
		l, err := h.Setup().Plan(program)
		if err != nil {
			b.Fatal(err)
		}
		l.Account = account.Account{UID: -1}
		dev, proc, err := pty.New(process.StartConfined)(l)
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
		if m, err := v.Poll(); m == nil || err != nil {
			b.Fatal(m, err)
		}
	}
	dev.Close()
	term.own.reader.Wait()
}

// BenchmarkMasking takes output through the screens of a terminal, without
// secrets, with some, and with as many as there may be, 4 KiB at a time as Linux
// hands it out.
func BenchmarkMasking(b *testing.B) {
	var lines, tui bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&lines, "2026-11-21T12:00:%02d.%03dZ INFO request served path=/v1/items/%d status=200 took=%dms\r\n", i%60, i, i, i%97)
	}
	for i := range 40 {
		for row := range 50 {
			fmt.Fprintf(&tui, "\x1b[%d;1H\x1b[38;5;%dm%-6d\x1b[0;1;48;2;9;20;30m %s \x1b[m\x1b[K", row+1, i*row%256, i*row, strings.Repeat("text ", (i+row)%36))
		}
	}
	for _, n := range []int{0, 100, redact.MaxSecrets} {
		secrets := make([]string, n)
		for i := range secrets {
			secrets[i] = fmt.Sprintf("secret-%x-of-many", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
		}
		set := compile(b, secrets...)
		for _, c := range []struct {
			name   string
			output []byte
		}{{"log", lines.Bytes()}, {"tui", tui.Bytes()}} {
			b.Run(fmt.Sprintf("%s/%dsecrets", c.name, n), func(b *testing.B) {
				dev, proc := newFakeDevice(), newFakeProcess()
				term := newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 200, Rows: 50}, newProgram(dev, proc),
					site{secrets: set}, slog.New(slog.DiscardHandler))
				var answers []byte
				b.SetBytes(int64(len(c.output)))
				for b.Loop() {
					for rest := c.output; len(rest) > 0; {
						piece := rest[:min(len(rest), 4<<10)]
						rest = rest[len(piece):]
						answers, _ = term.view.display.Write(answers[:0], piece, false)
					}
				}
				dev.Close()
				term.own.reader.Wait()
			})
		}
	}
}
