package chatlog

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const conversation = protocol.ConversationID("0d9b4b3e-6a3c-4b6e-8f0e-5c0e3a1f2b4d")

// said returns an event with a text.
func said(text string) *protocol.ChatEvent {
	return &protocol.ChatEvent{ID: "e", SessionID: conversation, Provider: "claude", Kind: protocol.ChatText, Role: "assistant", Content: &text}
}

func openLog(t testing.TB, o Options) (*Store, *Log) {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l, err := s.Log(conversation)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// all reads a log's events above after.
func all(t testing.TB, l *Log, after uint64) (entries []Entry) {
	t.Helper()
	r, at := l.Read(after, l.Position().Last)
	defer r.Close()
	_ = at
	for {
		e, err := r.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
}

func TestAppendAndRead(t *testing.T) {
	dir := t.TempDir()
	s, l := openLog(t, Options{Dir: dir})
	f, at := l.Subscribe(0)
	defer f.Close()
	if at.First != 1 || at.Last != 0 || !at.Covers(0) || at.Covers(1) {
		t.Fatalf("%+v", at)
	}
	user := said("hello")
	user.Role, user.CommandID = "user", "cmd_1"
	if err := l.Append(true, user, said("<b>two\n")); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(false, said("three")); err != nil {
		t.Fatal(err)
	}
	for want := uint64(1); want <= 3; want++ {
		e, err := f.Next(t.Context())
		if err != nil || e.Seq != want || (e.Origin == "cmd_1") != (want == 1) {
			t.Fatalf("%+v %v", e, err)
		}
	}
	if got := all(t, l, 1); len(got) != 2 || got[0].Seq != 2 {
		t.Fatalf("%+v", got)
	}
	position := l.Position()
	s.Close()
	if _, err := f.Next(context.Background()); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	_, l = openLog(t, Options{Dir: dir})
	if l.Position() != position || position.Last != 3 {
		t.Fatalf("%+v, was %+v", l.Position(), position)
	}
	if got := all(t, l, 0); len(got) != 3 || got[0].Origin != "cmd_1" || got[1].Origin != "" {
		t.Fatalf("%+v", got)
	}
}

// TestMarks: marks of clients are of any size.
func TestMarks(t *testing.T) {
	_, l := openSmall(t, Options{Dir: t.TempDir()}, nil)
	must(t, l.Append(false, said("one"), said("two"), said("three")))
	const beyond = ^uint64(0)
	for after, want := range map[uint64]uint64{0: 1, 1: 2, 2: 3, 3: 4, 4: 4, beyond - 1: 4, beyond: 4} {
		f, at := l.Subscribe(after)
		if f.From() != want || at.Covers(after) != (after <= 3) {
			t.Errorf("behind %d: from %d, %t", after, f.From(), at.Covers(after))
		}
		f.Close()
		r, _ := l.Read(after, beyond)
		n := uint64(0)
		for _, err := r.Next(); err == nil; _, err = r.Next() {
			n++
		}
		r.Close()
		if n != 4-want {
			t.Errorf("behind %d: %d events", after, n)
		}
	}
	r, _ := l.Read(2, 1)
	defer r.Close()
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}

// TestReplay reads 5,000 events, and says how long that takes.
func TestReplay(t *testing.T) {
	s, err := open(Options{Dir: t.TempDir()}, newRoom(segmentBytes, tailBytes, "boot", &lazy{}))
	must(t, err)
	defer s.Close()
	l, err := s.Log(conversation)
	must(t, err)
	l.Live(true)
	e := said(strings.Repeat("a text as they are ", 50))
	began := time.Now()
	for range 5000 {
		must(t, l.Append(false, e))
	}
	appended := time.Since(began)
	l.Live(false)
	began = time.Now()
	if got := all(t, l, 0); len(got) != 5000 {
		t.Fatalf("%d events", len(got))
	}
	t.Logf("5,000 events of %d bytes: appended in %v, read in %v", len(*e.Content), appended, time.Since(began))
}
