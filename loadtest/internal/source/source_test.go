package source

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A screen takes what a Machine writes.
type screen struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed *sync.Cond
}

func newScreen() *screen {
	s := new(screen)
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	return s.text.Write(p)
}

// wait returns all up to text, once that is there, and forgets it.
func (s *screen) wait(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.text.String(), text) {
		s.changed.Wait()
	}
	return string(s.text.Next(strings.Index(s.text.String(), text) + len(text)))
}

func machine(t *testing.T) (*Machine, *screen) {
	t.Helper()
	s := newScreen()
	m := New(s, nil)
	t.Cleanup(m.Close)
	m.Ready()
	s.wait("ready\r\n")
	return m, s
}

func TestGoWritesTheStream(t *testing.T) {
	m, s := machine(t)
	spec := pattern.Spec{Seed: 5, Chunk: 100, Rate: 2000, Burst: 4, Start: time.Now().Add(5 * time.Millisecond), Chunks: 100}
	m.Input([]byte(spec.Order() + "\rlag\r"))
	got := s.wait("lag 100 ")
	checker := pattern.NewChecker(spec, nil)
	checker.Write([]byte(got), time.Now())
	if r := checker.Finish(); !r.SumOK || r.Chunks != 100 {
		t.Errorf("got %+v", r)
	}
	if early := time.Until(spec.Due(99)); early > 0 {
		t.Errorf("the last chunk came %v before its time", early)
	}
}

// What becomes due within a moment is one write; none is made ahead of time.
func TestWritesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunks = 1000
		spec := pattern.Spec{Seed: 5, Chunk: 100, Rate: 10_000, Start: time.Now(), Chunks: chunks}
		written, writes := 0, 0
		m := New(writerFunc(func(p []byte) (int, error) {
			written, writes = written+len(p)/spec.Chunk, writes+1
			if written == 0 || time.Now().Before(spec.Due(written-1)) {
				t.Errorf("chunk %d comes ahead of its time", written-1)
			}
			return len(p), nil
		}), nil)
		m.Input([]byte(spec.Order() + "\r"))
		m.runs.Wait()
		m.Close()
		if most := int(100*time.Millisecond/gather) + 1; written != chunks || writes > most {
			t.Errorf("%d chunks in %d writes, want %d in at most %d", written, writes, chunks, most)
		}
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAsFastAsTaken(t *testing.T) {
	m, s := machine(t)
	spec := pattern.Spec{Seed: 5, Chunk: 1000, Start: time.Now(), Chunks: 2000}
	m.Input([]byte(spec.Order() + "\rclock\r"))
	got := s.wait("clock ")
	if sum := sha256.Sum256([]byte(strings.TrimSuffix(got, "clock "))); sum != spec.Sum() {
		t.Error("the sum is another")
	}
}

func TestStopEndsWhatIsUnderWay(t *testing.T) {
	m, s := machine(t)
	m.Input([]byte(pattern.Spec{Seed: 5, Chunk: 64, Rate: 1000, Start: time.Now()}.Order() + "\rclock\r"))
	s.wait("~0000000003")
	m.Input([]byte("stop\r"))
	s.wait("clock ")
}

func TestEchoIsAtOnceAndEndsWithItsByte(t *testing.T) {
	m, s := machine(t)
	m.Input([]byte("echo\r"))
	s.wait("echoing\r\n")
	m.Input([]byte("a\rquit\r"))
	if got := s.wait("quit\r"); got != "a\rquit\r" {
		t.Errorf("echoed %q", got)
	}
	m.Input([]byte("b\x04clock\r"))
	if got := s.wait("clock "); got != "bready\r\nclock " {
		t.Errorf("got %q", got)
	}
}

func TestKeysAreCountedBesideAStream(t *testing.T) {
	m, s := machine(t)
	m.Input([]byte(pattern.Spec{Seed: 5, Chunk: 64, Rate: 500, Start: time.Now(), Chunks: 50}.Order() + "\r"))
	m.Input([]byte("keys\r"))
	typed := "xyz\r\nstop\r"
	for _, b := range []byte(typed) {
		m.Input([]byte{b})
	}
	m.Input([]byte("\x04typed\r"))
	s.wait("~0000000049")
	want := fmt.Sprintf("typed %d %x\r\n", len(typed), sha256.Sum256([]byte(typed)))
	s.wait(want)
}

func TestWrongOrders(t *testing.T) {
	m, s := machine(t)
	for order, want := range map[string]string{
		"go 1 2 3":                 "error want: go",
		"go 1 2 3 1 0 1":           "error a chunk of 2 bytes",
		"dance":                    "error unknown order",
		"replay":                   "error want: replay",
		"replay no-such-recording": "error no such file",
		strings.Repeat("x", 9000):  "error unknown order",
	} {
		m.Input([]byte(order + "\n"))
		if got := s.wait("\r\n"); !strings.HasPrefix(got, want) {
			t.Errorf("%.20q: answered %q, want %q", order, got, want)
		}
	}
}

func TestOrdersThatWaitAreBounded(t *testing.T) {
	m, s := machine(t)
	m.Input([]byte(pattern.Spec{Chunk: 64, Rate: 1, Start: time.Now().Add(time.Hour)}.Order() + "\r"))
	for range 1000 {
		m.Input([]byte("clock\r"))
	}
	m.mu.Lock()
	waiting := len(m.orders)
	m.mu.Unlock()
	if waiting > maxOrders {
		t.Errorf("%d orders wait", waiting)
	}
	m.Input([]byte("stop\r"))
	s.wait("clock ")
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cast := write("a.cast", `{"version": 2, "width": 80, "height": 24}
[0.001, "o", "one\u001b[m "]
[0.002, "i", "typed"]

[0.003, "o", "two"]
`)
	raw, timing := write("raw", "one two"), write("timing", "0.001 4\n0.001 3\n")
	short := write("short", "0.0 4\n0.0 4\n")
	for _, c := range []struct{ order, want string }{
		{"replay " + cast, "one\x1b[m twoclock "},
		{"replay " + raw + " " + timing, "one twoclock "},
		{"replay " + raw + " " + short, "one error the timing is longer than the output\r\nclock "},
		{"replay " + raw, "error not an asciicast of version 2; another recording needs its timing\r\nclock "},
	} {
		m, s := machine(t)
		m.Input([]byte(c.order + "\rclock\r"))
		if got := s.wait("clock "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.order, got, c.want)
		}
	}
}

func FuzzRecordings(f *testing.F) {
	f.Add([]byte("{\"version\":2}\n[0.5,\"o\",\"x\"]"), []byte("0.5 1\n"))
	f.Fuzz(func(t *testing.T, data, timing []byte) {
		recordings := []recording{typescript(bytes.NewReader(data), bytes.NewReader(timing))}
		if next, err := asciicast(bytes.NewReader(data)); err == nil {
			recordings = append(recordings, next)
		}
		for _, next := range recordings {
			for {
				p, err := next()
				if err != nil {
					break
				}
				if p.after < 0 {
					t.Fatalf("a piece at %v", p.after)
				}
			}
		}
	})
}

func FuzzInput(f *testing.F) {
	f.Add([]byte("echo\rabc\x04keys\rabc\x04typed\rstop\rlag\r"))
	f.Fuzz(func(_ *testing.T, p []byte) {
		if bytes.Contains(p, []byte("replay")) {
			return // of what is on this disk
		}
		m := New(io.Discard, nil)
		m.Input(p)
		m.Close()
	})
}

// TestInATerminal runs the program in a real terminal, which must change
// neither what is typed nor what is written.
func TestInATerminal(t *testing.T) {
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	over := make(chan error, 1)
	go func() { over <- terminal(context.Background(), theirs, theirs) }()
	out := bufio.NewReader(ours)
	line := func() string {
		text, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := line(); got != "ready\r\n" {
		t.Fatalf("began with %q", got)
	}
	before := time.Now()
	fmt.Fprint(ours, "clock\r")
	micros, err := strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(line(), "clock ")), 10, 64)
	if at := time.UnixMicro(micros); err != nil || at.Before(before.Add(-time.Millisecond)) || time.Since(at) < 0 {
		t.Errorf("the clock says %v, %v", at, err)
	}
	spec := pattern.Spec{Seed: 1, Chunk: 4000, Start: time.Now(), Chunks: 20}
	fmt.Fprint(ours, spec.Order()+"\r")
	got := make([]byte, spec.Size())
	if _, err := io.ReadFull(out, got); err != nil || sha256.Sum256(got) != spec.Sum() {
		t.Errorf("the terminal changed what was written: %v", err)
	}
	fmt.Fprint(ours, "echo\r")
	if got := line(); got != "echoing\r\n" {
		t.Errorf("answered %q", got)
	}
	every := make([]byte, 0, 256)
	for b := range 256 {
		if b != endByte {
			every = append(every, byte(b))
		}
	}
	if _, err := ours.Write(every); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(every))
	if _, err := io.ReadFull(out, back); err != nil || !bytes.Equal(back, every) {
		t.Errorf("echoed %q, %v", back, err)
	}
	fmt.Fprint(ours, "\x04quit\r")
	if err := <-over; err != nil {
		t.Error(err)
	}
	theirs.Close()
}
