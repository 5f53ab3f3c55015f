package terminal

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// TestTranscript prints each secret in each encoding, byte by byte, in colours,
// on a narrow screen: nobody gets any of it, and what is around it comes.
func TestTranscript(t *testing.T) {
	for _, secret := range []string{secretA, secretB} {
		withMaskRig(t, 20, 6, compile(t, secretA, secretB), func(t *testing.T, m *maskRig) {
			m.print("begin\r\n")
			for i, form := range encodings(secret) {
				m.slowly(fmt.Sprintf("%d: ", i) + form + ".\r\n")
				m.slowly("$ " + coloured(form) + " |\r\n")
			}
			m.slowly("\x1b]2;" + secret + "\a")
			m.print("end\r\n")
			if !bytes.Contains(m.seen.Bytes(), []byte("end\r\n")) || !bytes.Contains(m.seen.Bytes(), []byte("***")) {
				t.Errorf("got %q", m.seen.String())
			}
			m.wantAllClean(secretA, secretB)
		})
	}
}

// TestLateSecret: what holds the secret is gone, wherever it is, and the
// terminal goes on.
func TestLateSecret(t *testing.T) {
	fill := func(n int) string { return strings.Repeat(strings.Repeat("x", 78)+"\r\n", n/80) }
	for name, c := range map[string]struct {
		before string
		resets int
	}{
		"screen":     {"$ echo " + secretA + "\r\n", 1},
		"scrollback": {secretA + "\r\n" + strings.Repeat("line\r\n", 100), 1},
		"alternate":  {"\x1b[?1049h\x1b[5;5H" + secretA + "\x1b[?25l", 1},
		"behind":     {secretA + "\x1b[?1049h", 1},
		"title":      {"\x1b]2;" + secretA + "\a", 1},
		"open title": {"\x1b]2;" + secretA, 1},
		"link":       {"\x1b]8;;http://x/" + secretA + "\ahere\x1b]8;;\a", 1},
		"encoded":    {hex.EncodeToString([]byte(secretA)) + "\r\n", 1},
		"window":     {secretA + "\r\n\x1bc" + fill(1<<20), 1},
		"spill":      {secretA + "\r\n\x1bc" + fill(5<<20), 1},
		"nowhere":    {"nothing\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			withMaskRig(t, 80, 24, nil, func(t *testing.T, m *maskRig) {
				for rest := c.before; rest != ""; {
					n := min(len(rest), readBytes)
					m.print(rest[:n])
					rest = rest[n:]
				}
				before := m.opened.Epoch
				reading, _, err := m.Read(protocol.ReadParams{Epoch: before, To: 1 << 60})
				if err != nil {
					t.Fatal(err)
				}
				m.late(compile(t, secretA))
				if m.resets != c.resets {
					t.Fatalf("%d resets", m.resets)
				}
				_, err = reading.Next()
				_, _, err2 := m.Read(protocol.ReadParams{Epoch: before, To: 1})
				for _, err := range []error{err, err2} {
					if gone := err != nil && protocol.AsError(err).Kind == protocol.KindNotFound; gone != (c.resets > 0) {
						t.Errorf("a reader of the epoch gets %v", err)
					}
				}
				m.print("after " + secretA[:9])
				m.print(secretA[9:] + "\r\n")
				m.wantAllClean(secretA)
				if !bytes.Contains(m.seen.Bytes(), []byte("after ")) {
					t.Errorf("got %q", m.seen.String())
				}
				late := m.rig.attach(t, &protocol.Position{Epoch: before, Offset: 3})
				if o := late.opened; o.Gap != (c.resets > 0) {
					t.Errorf("opened %+v", o)
				}
			})
		})
	}
}

// TestLateSecretAfterTheEnd: the log of an ended program begins anew, and ends.
func TestLateSecretAfterTheEnd(t *testing.T) {
	withMaskRig(t, 80, 24, nil, func(t *testing.T, m *maskRig) {
		before := m.opened.Epoch
		m.print("key " + secretA + "\r\n")
		m.proc.exit(3)
		close(m.dev.output)
		<-m.life.gone
		m.late(compile(t, secretA))
		v := m.rig.attach(t, &protocol.Position{Epoch: before, Offset: 3})
		if o := v.opened; !o.Gap || o.Epoch == before || o.Exited == nil || o.Exited.Code != 3 {
			t.Errorf("opened %+v", o)
		}
		data := want[protocol.Data](v)
		wantClean(t, "one who comes late", data.Bytes, secretA)
		if !bytes.Contains(data.Bytes, []byte("key ***")) {
			t.Errorf("got %q", data.Bytes)
		}
		if e := want[protocol.Exited](v); e.Code != 3 || e.Offset != uint64(len(data.Bytes)) {
			t.Errorf("got %+v", e)
		}
		if n := len(m.spilledNow()); n > 0 {
			t.Errorf("%d bytes are on disk", n)
		}
		wantClean(t, "the spill", m.spilledNow(), secretA)
	})
}

// TestLateSecretHalfPrinted: the rest of it is masked, and then the first half.
func TestLateSecretHalfPrinted(t *testing.T) {
	withMaskRig(t, 80, 24, nil, func(t *testing.T, m *maskRig) {
		m.print("$ " + secretA[:10])
		m.late(compile(t, secretA))
		m.print(secretA[10:] + " end\r\n")
		m.print("after")
		if got := m.seen.String(); m.resets != 1 || strings.Contains(got, secretA[10:14]) || !strings.Contains(got, " end") || !strings.HasSuffix(got, "after") {
			t.Errorf("%d resets, got %q", m.resets, got)
		}
		m.wantAllClean(secretA)
	})
}

// TestLateSecretInRecording: it is discarded though the log no longer has the
// secret; an ended one is masked.
func TestLateSecretInRecording(t *testing.T) {
	withMaskRig(t, 80, 24, nil, func(t *testing.T, m *maskRig) {
		m.print(secretA[:7])
		m.print(secretA[7:] + "\r\nkept\r\n")
		m.stopRecordingNow()
		again, err := m.startRecording(m.recordings)
		if err != nil {
			t.Fatal(err)
		}
		m.print("more\r\n")
		m.late(compile(t, secretA))
		m.print("after\r\n")
		m.wantAllClean(secretA)
		m.stopRecordingNow()
		for _, info := range m.recordings.List(session) {
			c, err := m.recordings.Read(session, info.ID)
			if err != nil {
				t.Fatal(err)
			}
			got := decoded(t, c)
			c.Close()
			wantClean(t, info.ID, got, secretA)
			want := "\r\nkept\r\n"
			if info.ID == again {
				want = "after"
			}
			if !bytes.Contains(got, []byte(want)) {
				t.Errorf("%s: %q", info.ID, got)
			}
		}
	})
}

// TestSecretsTakenBack: what was recorded stays, and no more is masked.
func TestSecretsTakenBack(t *testing.T) {
	withMaskRig(t, 80, 24, nil, func(t *testing.T, m *maskRig) {
		m.print("kept\r\n")
		m.late(compile(t, secretA))
		m.print(secretA + "\r\n" + secretA[:9])
		m.late(&redact.Set{})
		m.print("\r\n" + secretA)
		want := "kept\r\n" + strings.Repeat("*", len(secretA)) + "\r\n" + secretA[:9] + "\r\n" + secretA
		for _, got := range []string{m.seen.String(), string(m.recordedNow())} {
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		m.wantScreenOfLog()
	})
}

func (m *maskRig) stopRecordingNow() {
	m.t.Helper()
	if _, err := m.stopRecording(); err != nil {
		m.t.Fatal(err)
	}
}

// TestDrawnSecret: what reads as a secret on the screen, though it was printed
// otherwise, is masked and never in the log.
func TestDrawnSecret(t *testing.T) {
	s := secretA
	half := len(s) / 2
	for name, c := range map[string][]string{
		"second half first": {fmt.Sprintf("\x1b[5;%dH%s", 10+half, s[half:]), "\x1b[5;10H" + s[:half]},
		"in one piece":      {fmt.Sprintf("\x1b[5;%dH%s\x1b[5;10H%s", 10+half, s[half:], s[:half])},
		"every second":      {every(s, 0), every(s, 1)},
		"columns":           {backwards(s)},
		"carriage return":   {strings.Repeat(" ", half) + s[half:], "\r" + s[:half]},
		"deleted between":   {"\r" + s[:half] + "##" + s[half:], fmt.Sprintf("\x1b[%dG\x1b[2P", half+1)},
		"NUL between":       {s[:half] + "\x00" + s[half:]},
		"full width":        {strings.Repeat("-", 40-half) + s[:half] + "\r\n", s[half:] + "\r\n"},
		"scrolled away":     {fmt.Sprintf("\x1b[5;%dH%s\x1b[5;10H%s\x1b[8;1H", 10+half, s[half:], s[:half]) + strings.Repeat("\r\n", 20)},
		"alternate":         {"\x1b[?1049h" + fmt.Sprintf("\x1b[5;%dH%s\x1b[5;10H%s", 10+half, s[half:], s[:half])},
		"again and again":   {fmt.Sprintf("\x1b[5;%dH%s\x1b[5;10H%s", 10+half, s[half:], s[:half]), "\x1b[7;1Hok", fmt.Sprintf("\x1b[6;%dH%s\x1b[6;10H%s", 10+half, s[half:], s[:half])},
		"insert":            {"\r" + s[half:] + "\r\x1b[4h" + s[:half] + "\x1b[4l"},
		"no wrap":           {"\x1b[?7l\x1b[5;1H" + strings.Repeat("-", 40-len(s)) + s[:len(s)-1] + "abcdef" + s[len(s)-1:]},
	} {
		t.Run(name, func(t *testing.T) {
			withMaskRig(t, 40, 8, compile(t, secretA), func(t *testing.T, m *maskRig) {
				m.print("\x1b[H\x1b[J")
				for _, p := range c {
					m.print(p)
					time.Sleep(epochEvery)
					m.drain()
				}
				m.print("\x1b[8;1Hafter")
				m.wantAllClean(secretA)
				m.view.mu.Lock()
				text := m.view.display.Fork().AppendNewText(nil)
				m.view.mu.Unlock()
				wantClean(t, "the screen", bytes.ReplaceAll(text, []byte("\n"), nil), secretA)
				if !bytes.Contains(m.seen.Bytes(), []byte("after")) {
					t.Errorf("got %q", m.seen.String())
				}
			})
		})
	}
}

// every returns what draws each second byte of s, from the first or second on.
func every(s string, from int) string {
	var b strings.Builder
	for i := from; i < len(s); i += 2 {
		fmt.Fprintf(&b, "\x1b[3;%dH%c", 5+i, s[i])
	}
	return b.String()
}

// backwards draws s from its end.
func backwards(s string) string {
	var b strings.Builder
	for i := len(s) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "\x1b[3;%dH%c", 5+i, s[i])
	}
	return b.String()
}

// drawnAt returns what draws a secret in a row, its end first.
func drawnAt(row int) string {
	return fmt.Sprintf("\x1b[%d;9H%s\x1b[%d;1H%s\x1b[24;1H....", row, secretA[8:], row, secretA[:8])
}

// TestDrawnOften: epochs don't follow each other closely; the program waits, and
// nothing gets lost or out.
func TestDrawnOften(t *testing.T) {
	withMaskRig(t, 80, 24, compile(t, secretA), func(t *testing.T, m *maskRig) {
		start := time.Now()
		for i := range 5 {
			m.rig.dev.output <- []byte(drawnAt(i + 1))
		}
		m.rig.dev.output <- []byte("\x1b[20;1Hlast")
		synctest.Wait()
		m.drain()
		if took := time.Since(start); took < 4*epochEvery || took > 5*epochEvery {
			t.Errorf("took %v", took)
		}
		if m.view.display.Found() != 5 || !bytes.Contains(m.seen.Bytes(), []byte("last")) {
			t.Errorf("found %d, got %q", m.view.display.Found(), m.seen.String())
		}
		m.wantAllClean(secretA)
	})
}

// TestDrawnAtTheEnd: the last thing that a program draws isn't lost with it.
func TestDrawnAtTheEnd(t *testing.T) {
	withMaskRig(t, 80, 24, compile(t, secretA), func(t *testing.T, m *maskRig) {
		for i := range 2 {
			m.rig.dev.output <- []byte(drawnAt(i + 1))
		}
		m.proc.exit(0)
		close(m.dev.output)
		<-m.life.gone
		m.drain()
		wantClean(t, "a viewer", m.seen.Bytes(), secretA)
		if strings.Count(m.seen.String(), strings.Repeat("*", len(secretA))) < 2 {
			t.Errorf("got %q", m.seen.String())
		}
	})
}

// TestExitWhileHeld: the beginning of a secret becomes asterisks, and comes.
func TestExitWhileHeld(t *testing.T) {
	withMaskRig(t, 80, 24, compile(t, secretA), func(t *testing.T, m *maskRig) {
		m.print("$ " + secretA[:9])
		if got := m.seen.String(); got != "$ " && got != "$ "+secretA[:3] {
			t.Errorf("before: %q", got)
		}
		m.proc.exit(0)
		close(m.dev.output)
		<-m.life.gone
		m.drain()
		if got := m.seen.String(); got != "$ *********" && got != "$ "+secretA[:3]+"******" {
			t.Errorf("after: %q", got)
		}
	})
}

// TestHeldNotice: who watches is told of output that is held back for long.
func TestHeldNotice(t *testing.T) {
	withMaskRig(t, 80, 24, compile(t, secretA), func(t *testing.T, m *maskRig) {
		wait := func(d time.Duration) {
			time.Sleep(d)
			m.drain()
		}
		want := func(held ...bool) {
			t.Helper()
			if fmt.Sprint(m.held) != fmt.Sprint(held) {
				t.Fatalf("told %v, want %v", m.held, held)
			}
		}
		m.print("$ " + secretA[:5])
		wait(protocol.HeldNotice - time.Millisecond)
		m.print(secretA[5:6]) // more output
		wait(protocol.HeldNotice - time.Millisecond)
		want()
		wait(time.Millisecond)
		want(true)
		m.print(secretA[6:7])
		wait(protocol.HeldNotice)
		want(true)
		late := m.rig.attach(t, nil)
		if h := next[protocol.Held](late); !h.Held {
			t.Error("one who comes late isn't told")
		}
		m.print("no")
		want(true, false)
		if !strings.HasSuffix(m.seen.String(), secretA[:7]+"no") {
			t.Errorf("got %q", m.seen.String())
		}
		m.print("\r\n" + secretA[:5])
		m.print("xxxx")
		wait(2 * protocol.HeldNotice)
		want(true, false)
	})
}

func next[M protocol.Message](v *viewer) M {
	v.t.Helper()
	return want[M](v)
}

// TestAnswersDontWait: a query behind held output is answered at once, with the
// place that the program knows.
func TestAnswersDontWait(t *testing.T) {
	withMaskRig(t, 80, 24, compile(t, secretA), func(t *testing.T, m *maskRig) {
		m.print("$ " + secretA[:9] + "\x1b[6n")
		if got := m.dev.take(); got != "\x1b[1;12R" {
			t.Errorf("answer %q", got)
		}
		m.print(secretA[9:] + "\x1b[6n")
		if got := m.dev.take(); got != fmt.Sprintf("\x1b[1;%dR", 3+len(secretA)) {
			t.Errorf("answer %q", got)
		}
		m.wantAllClean(secretA)
	})
}

// TestResizedWhileHeld: the size comes first, then what was held.
func TestResizedWhileHeld(t *testing.T) {
	withMaskRig(t, 80, 24, compile(t, secretA), func(t *testing.T, m *maskRig) {
		m.print("$ " + secretA[:9])
		head := m.headNow()
		m.view.mu.Lock()
		if err := m.arbiter.AskSize(40, 10); err != nil {
			t.Error(err)
		}
		m.resize()
		m.view.mu.Unlock()
		m.drain()
		if c, r := m.transcript.SizeAt(head); c != 40 || r != 10 {
			t.Errorf("%d×%d at the place where what is held comes", c, r)
		}
		m.print("!!!!\r\n")
		if !strings.HasSuffix(m.seen.String(), secretA[:9]+"!!!!\r\n") {
			t.Errorf("got %q", m.seen.String())
		}
		m.wantScreenOfLog()
	})
}

func (m *maskRig) headNow() uint64 {
	return m.transcript.Head()
}

// TestSecretInKeyframeUnderWay: what is left of a keyframe that was begun in the
// old epoch shows nothing.
func TestSecretInKeyframeUnderWay(t *testing.T) {
	withMaskRig(t, 200, 100, nil, func(t *testing.T, m *maskRig) {
		for i := range 100 {
			m.print(fmt.Sprintf("\x1b[%d;1H%s", i+1, coloured(strings.Repeat("0123456789", 19))))
		}
		m.print("\x1b[100;1H" + secretA)
		m.WantKeyframe(false)
		for {
			if k, ok := m.viewer.next().(protocol.Keyframe); ok {
				if k.Left == 0 {
					t.Fatal("the screen is too small")
				}
				break
			}
		}
		m.setSecrets(compile(t, secretA))
		for {
			k := want[protocol.Keyframe](m.viewer)
			if bytes.Trim(k.Bytes, "\x00") != nil && len(bytes.Trim(k.Bytes, "\x00")) > 0 {
				t.Fatalf("got %q", k.Bytes)
			}
			if k.Left == 0 {
				break
			}
		}
		want[protocol.Reset](m.viewer)
	})
}
