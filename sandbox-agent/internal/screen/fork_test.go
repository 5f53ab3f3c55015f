package screen

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// output draws what a program may print: pieces of all kinds, cut anywhere.
func output(t *rapid.T) []byte {
	pieces := append([]string{
		"\x1b[6n", "\x1b[c", "\x1b]11;?\a", "\x1bP$qm\x1b\\", "\x1b]4;1;?\x1b\\", "\x05", "\x1b", "\x1b[", "\xe2\x82", "\xac",
		"\r\n", "\n", "x", "\x1b]2;title", "\a", "\x1b\\", "\x1bc", "\x1b[!p", "\x1b[3;2H", "\x1b[2J", "e\u0301", "漢",
	}, streams...)
	var all strings.Builder
	for range rapid.IntRange(0, 12).Draw(t, "pieces") {
		all.WriteString(rapid.SampledFrom(pieces).Draw(t, "piece"))
	}
	p := []byte(all.String())
	if len(p) > 0 {
		p = p[rapid.IntRange(0, min(3, len(p)-1)).Draw(t, "from"):]
		p = p[:len(p)-rapid.IntRange(0, min(3, len(p))).Draw(t, "cut")]
	}
	return p
}

// TestClone: a clone goes on as the original does, and neither changes the
// other.
func TestClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(20, 6)
		s.Write(nil, nil, output(t))
		before := dump(s)
		c := s.Clone()
		more := output(t)
		out, answers := c.Write(nil, nil, more)
		if after := dump(s); after != before {
			t.Fatalf("the original has changed: got\n%s\nwant\n%s", after, before)
		}
		wantOut, wantAnswers := s.Write(nil, nil, more)
		if string(out) != string(wantOut) || string(answers) != string(wantAnswers) {
			t.Fatalf("let out %q and %q, want %q and %q", out, answers, wantOut, wantAnswers)
		}
		c.Resize(9, 4)
		s.Resize(9, 4)
		if got, want := dump(c), dump(s); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		if got, want := string(c.AppendKeyframe(nil, 100)), string(s.AppendKeyframe(nil, 100)); got != want {
			t.Fatalf("keyframe %q, want %q", got, want)
		}
	})
}

// TestFork: a fork that gets what the original lets out is where a screen is
// that got all of it. Only a broken character may wait in that one.
func TestFork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, follower := New(20, 6), New(20, 6)
		out, _ := s.Write(nil, nil, output(t))
		follow, _ := follower.Write(nil, nil, out)
		let, want := string(out), string(follow)
		fork := s.Fork()
		for range 3 {
			if got, want := string(fork.AppendKeyframe(nil, 100)), string(follower.AppendKeyframe(nil, 100)); got != want {
				t.Fatalf("keyframe %q, want %q", got, want)
			}
			out, _ := s.Write(nil, nil, output(t))
			a, _ := fork.Write(nil, nil, out)
			b, _ := follower.Write(nil, nil, out)
			let, want = let+string(a), want+string(b)
			if !strings.HasPrefix(let, want) || len(let)-len(want) > 3 {
				t.Fatalf("let out %q, want %q", let, want)
			}
		}
	})
}

// TestSame: screens that were written the same are the same, and what a screen
// shows or does next tells them apart.
func TestSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(20, 6)
		s.Write(nil, nil, output(t))
		c := s.Clone()
		if !Same(s, c) || !Same(c, s) {
			t.Fatal("a clone is not the same")
		}
		c.Write(nil, nil, output(t))
		if !Same(s, c) {
			return
		}
		if got, want := dump(c), dump(s); got != want {
			t.Fatalf("not the same: got\n%s\nwant\n%s", got, want)
		}
		more := output(t)
		out, answers := c.Write(nil, nil, more)
		wantOut, wantAnswers := s.Write(nil, nil, more)
		if string(out) != string(wantOut) || string(answers) != string(wantAnswers) || dump(c) != dump(s) {
			t.Fatalf("then not the same: let out %q and %q, want %q and %q", out, answers, wantOut, wantAnswers)
		}
	})
}
