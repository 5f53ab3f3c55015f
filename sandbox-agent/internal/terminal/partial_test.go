package terminal

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// secretLong begins with secretShort, which is a secret, too.
const (
	secretShort = "tok_prod_8f3kQz71b"
	secretLong  = secretShort + "/W0xR5m-Jd9uT2yHc6NvLs4ePqAiKo"
	secretTail  = "/W0xR5m-Jd9uT2yHc6NvLs4ePqAiKo"
)

// TestSecretsChange: what was a secret once is remembered, within bounds.
func TestSecretsChange(t *testing.T) {
	has := func(sets []*redact.Set, text string) bool {
		return slices.ContainsFunc(sets, func(s *redact.Set) bool { return s.MatchesIn([]byte(text)) })
	}
	stars := strings.Repeat("*", len(secretShort)) + secretTail
	var s secrets
	if sets := s.change([]string{secretShort}); len(sets) != 0 {
		t.Errorf("%d sets for one value", len(sets))
	}
	if sets := s.change([]string{secretLong, secretShort}); len(sets) != 1 || !has(sets, stars) {
		t.Errorf("%d sets", len(sets))
	}
	s.change(nil)
	if sets := s.change([]string{secretLong}); len(s.former) != 1 || len(sets) != 1 || !has(sets, stars) {
		t.Errorf("%d sets after it was taken back, %d values remembered", len(sets), len(s.former))
	}
	for i := range 200 {
		s.change([]string{fmt.Sprint(i, strings.Repeat("-", 1000))})
	}
	if n := bytesOf(s.former); n > maxFormerBytes || n < maxFormerBytes-2000 {
		t.Errorf("%d bytes are remembered", n)
	}
}

// TestLateSecretAroundAnother: a secret that is set late is found though a part
// of it was a secret before, wherever it is.
func TestLateSecretAroundAnother(t *testing.T) {
	fill := strings.Repeat(strings.Repeat("x", 78)+"\r\n", 400)
	for name, c := range map[string]struct {
		around string
		fills  int // 32 kB each
		ended  bool
	}{
		"screen":          {},
		"wrapped":         {around: strings.Repeat("-", 60)},
		"window":          {fills: 20},
		"spill":           {fills: 160},
		"ended recording": {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			withMaskRig(t, 80, 24, compile(t, secretShort), func(t *testing.T, m *maskRig) {
				m.print(c.around + secretLong + "\r\n")
				if c.fills > 0 {
					m.print("\x1bc")
				}
				for range c.fills {
					m.print(fill)
				}
				if c.ended {
					m.stopRecordingNow()
					if _, err := m.startRecording(m.recordings); err != nil {
						t.Fatal(err)
					}
				}
				if !strings.Contains(m.seen.String(), strings.Repeat("*", len(secretShort))+secretTail) {
					t.Fatalf("got %q", m.seen.String())
				}
				var s secrets
				s.change([]string{secretShort})
				m.late(compile(t, secretShort, secretLong), s.change([]string{secretShort, secretLong})...)
				if m.resets != 1 {
					t.Errorf("%d resets", m.resets)
				}
				m.print("after\r\n")
				m.wantAllClean(secretLong)
				if !strings.Contains(m.seen.String(), "after") {
					t.Errorf("got %q", m.seen.String())
				}
				m.stopRecordingNow()
				if err := m.recordings.Mask(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, info := range m.recordings.List(session) {
					tape, err := m.recordings.Read(session, info.ID)
					if err != nil {
						t.Fatal(err)
					}
					wantClean(t, info.ID, decoded(t, tape), secretLong)
					tape.Close()
				}
			})
		})
	}
}

// TestDrawnAroundAnother: a secret of which a part is one, too, is drawn out of
// order; so it never reads as itself where that part is masked.
func TestDrawnAroundAnother(t *testing.T) {
	long, n := secretLong, len(secretShort)
	typed := []string{}
	for _, c := range long[:23] {
		typed = append(typed, string(c))
	}
	typed = append(typed, "\b", "\b", "\b", "\b", "\x1b[C", "\x1b[C", "\x1b[C", "\x1b[C")
	for _, c := range long[23:] {
		typed = append(typed, string(c))
	}
	for name, pieces := range map[string][]string{
		"back and forth": {long[:23] + "\b\b\b\b\x1b[4C" + long[23:] + "\r\n"},
		"struck over":    {long[:n] + "xyz\x1b[3D" + long[n:] + "\r\n"},
		"from column 1":  {long[:n] + "xyz\r\x1b[17C" + long[n-1:] + "\r\n"},
		"end first":      {"\x1b[" + strconv.Itoa(n+1) + "G" + long[n:] + "\r" + long[:n] + "\r\n"},
		"saved":          {"\x1b7\x1b[" + strconv.Itoa(n) + "C" + long[n:] + "\x1b8" + long[:n] + "\r\n"},
		"typed":          append(typed, "\r\n"),
		"end, prompt":    {"\x1b[" + strconv.Itoa(n+1) + "G" + long[n:] + "\r" + long[:n], "\r\n$ "},
		"wrapped":        {strings.Repeat("-", 60) + long[:23] + "\b\b\x1b[2C" + long[23:] + "\r\n"},
		"alternate":      {"\x1b[?1049h\x1b[5;" + strconv.Itoa(n+1) + "H" + long[n:] + "\x1b[5;1H" + long[:n]},
	} {
		t.Run(name, func(t *testing.T) {
			withMaskRig(t, 80, 24, compile(t, secretShort, secretLong), func(t *testing.T, m *maskRig) {
				for _, p := range pieces {
					m.print(p)
				}
				m.pass(epochEvery)
				m.drain()
				m.print("after")
				if m.resets != 1 {
					t.Errorf("%d resets", m.resets)
				}
				m.wantAllClean(secretLong)
				if !strings.Contains(m.seen.String(), "after") {
					t.Errorf("got %q", m.seen.String())
				}
			})
		})
	}
}

// TestRedrawnSecret: a program that draws its screen with a secret on it again
// and again has it masked as it comes, and no epoch ends for that.
func TestRedrawnSecret(t *testing.T) {
	row := func(y int, text string) string { return fmt.Sprintf("\x1b[%d;3H%s", y, text) }
	frame := "\x1b[H" + row(2, "key: "+secretLong) + row(3, coloured(secretShort)) + row(4, secretLong[:20]+" …") + row(9, "ready")
	for name, redraw := range map[string]func(i int) []string{
		"all":     func(int) []string { return []string{frame} },
		"cleared": func(int) []string { return []string{"\x1b[2J" + frame} },
		"split": func(i int) []string {
			at := 1 + i*7%(len(frame)-1)
			return []string{frame[:at], frame[at:]}
		},
		"scrolled":  func(int) []string { return []string{"\x1b[2;1H\x1b[M\x1b[L" + frame} },
		"character": func(i int) []string { return []string{fmt.Sprintf("\x1b[2;%dH%c", 8+i%3, secretLong[i%3])} },
		"clock":     func(i int) []string { return []string{row(9, fmt.Sprint(i)) + "\r"} },
	} {
		t.Run(name, func(t *testing.T) {
			withMaskRig(t, 80, 24, compile(t, secretShort, secretLong), func(t *testing.T, m *maskRig) {
				m.print("\x1b[?1049h" + frame)
				for i := range 200 {
					for _, p := range redraw(i) {
						m.print(p)
					}
					m.pass(50 * time.Millisecond)
				}
				if m.resets != 0 || m.view.display.Found() != 0 {
					t.Errorf("%d resets", m.resets)
				}
				m.wantAllClean(secretLong)
			})
		})
	}
}

// TestSecretsForgotten: a set that has been replaced is not held by anything.
func TestSecretsForgotten(t *testing.T) {
	h := realHost(t, IsolationNone)
	run := unechoed("echo up; exec cat")
	run.Record = h.config.Recordings != nil
	old := func() weak.Pointer[redact.Set] {
		set := compile(t, secretA)
		h.SetSecrets(set, []string{secretA})
		return weak.Make(set)
	}()
	u := sitDown(t, h, run) // begins with it
	u.expect("up")
	u.enter(secretA[:9] + "\n")
	h.SetSecrets(compile(t, secretB), []string{secretB})
	u.enter("done\n")
	u.expect("done")
	for late := time.Now().Add(time.Minute); old.Value() != nil; runtime.GC() {
		if time.Now().After(late) {
			t.Fatal("the set is still in memory")
		}
	}
}

// TestMemoryGivenBack: after a change of a large set, and only then, unused
// memory goes back to the system. It logs how much is resident.
func TestMemoryGivenBack(t *testing.T) { synctest.Test(t, testMemoryGivenBack) }

func testMemoryGivenBack(t *testing.T) {
	large := make([]string, largeBytes/32)
	for i := range large {
		large[i] = fmt.Sprintf("%032d", i)
	}
	var s secrets
	s.change([]string{secretA})
	s.change([]string{secretB})
	if s.free != nil {
		t.Error("for a small set")
	}
	for _, values := range [][]string{large, nil} {
		s.change(values)
		if s.free == nil || !s.free.Stop() {
			t.Errorf("not after a change to %d values", len(values))
		}
	}
	s.change([]string{secretA})
	if s.free.Stop() {
		t.Error("long after")
	}
}
