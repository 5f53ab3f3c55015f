package approval

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

// written returns a session's file with four events, of which the last lets one
// question expire.
func written(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	l, err := Open(Options{Dir: dir})
	must(t, err)
	p, err := l.Ask(egress("a.example"))
	must(t, err)
	_, err = l.Ask(egress("b.example"))
	must(t, err)
	_, _, err = l.Decide(answer(p.ID(), protocol.AllowAlways))
	must(t, err)
	l.Close()
	l, err = Open(Options{Dir: dir})
	must(t, err)
	l.Close()
	data, err := os.ReadFile(filepath.Join(dir, "ses_1.jsonl"))
	must(t, err)
	return data
}

// parse reads a session's file. torn reports that the next event has it replaced.
func parse(t testing.TB, data []byte) (s *sessionLog, mem *memory, torn bool, err error) {
	t.Helper()
	mem = &memory{data: bytes.Clone(data)}
	l := newLog(Options{Logger: discard}, mem)
	s, o := l.newSession(session)
	if s.events, err = journal.Open(o); err != nil {
		return nil, mem, false, err
	}
	again, err := journal.Open(o)
	must(t, err)
	must(t, again.Append(protocol.Approval{}))
	torn, mem.data, mem.replaced = mem.replaced > 0, bytes.Clone(data), 0
	return s, mem, torn, nil
}

// encode returns the file of s as it is when it is written anew.
func (s *sessionLog) encode() []byte {
	var content []byte
	s.events.View(func(events *eventlog.Log[protocol.Approval]) {
		content = append(s.Header(protocol.Position{Epoch: events.Epoch(), Offset: events.First()}), '\n')
		for offset, a := range events.All() {
			content = append(append(content, s.Event(offset, a)...), '\n')
		}
	})
	return content
}

func (s *sessionLog) next() uint64 { return s.events.Position().Offset }

// TestTorn cuts the file at every byte: whole events stay, a half one is nothing.
func TestTorn(t *testing.T) {
	data := written(t)
	head := bytes.IndexByte(data, '\n') + 1
	for size := range data {
		for _, tail := range []string{"", "\x00\x00\x00", "\n\x00"} {
			cut := append(bytes.Clone(data[:size]), tail...)
			s, _, torn, err := parse(t, cut)
			if size < head-1 || size == head-1 && tail != "\n\x00" {
				if !errors.Is(err, journal.ErrDamaged) {
					t.Fatalf("cut at %d: %v", size, err)
				}
				continue
			}
			whole := bytes.Count(data[:size], []byte("\n")) - 1
			if s != nil && size > 0 && data[size] == '\n' && tail == "\n\x00" {
				whole++ // the cut line has its end after all
			}
			if err != nil || s.len() != whole {
				t.Fatalf("cut at %d, then %q: %v, %+v", size, tail, err, s)
			}
			if !torn && (tail != "" && size > head || data[size-1] != '\n') {
				t.Fatalf("cut at %d, then %q: not torn", size, tail)
			}
		}
	}
}

// TestTornGoesOn: a log whose last line was cut is whole again after the next
// start, under its epoch.
func TestTornGoesOn(t *testing.T) {
	data := written(t)
	r := newRig(t)
	r.Close()
	path := filepath.Join(r.dir, "ses_1.jsonl")
	must(t, os.WriteFile(path, data[:len(data)-10], 0o600))
	r.open()
	list := r.List(session)
	before, _, _, err := parse(t, data)
	must(t, err)
	if list.Epoch != before.events.Position().Epoch || list.Offset != 4 || len(list.Approvals) != 2 || r.tale() != "b.example=expired/2" {
		t.Errorf("%+v, told %s", list, r.tale())
	}
	data, err = os.ReadFile(path)
	must(t, err)
	if s, _, torn, err := parse(t, data); err != nil || torn || s.next() != 4 {
		t.Errorf("%v, torn %v", err, torn)
	}
}

// TestDamaged: what no crash makes is put aside, and the session begins anew.
func TestDamaged(t *testing.T) {
	data := string(written(t))
	lines := strings.SplitAfter(data, "\n")
	damaged := map[string]string{
		"empty": "", "another session": strings.ReplaceAll(data, "ses_1", "ses_2"),
		"another format": strings.Replace(data, `"format":1`, `"format":2`, 1),
		"a hole":         lines[0] + lines[2], "twice": data + lines[1], "no header": lines[1],
		"garbage within": lines[0] + "x\n" + lines[1], "unknown member": strings.Replace(data, `"offset":1,`, `"offset":1,"x":1,`, 1),
		"unknown state": strings.Replace(data, `"state":"pending"`, `"state":"open"`, 1),
		"pending later": strings.Replace(data, `"pending":[]`, `"pending":[{"id":"a"}]`, 1),
		"too long":      lines[0] + lines[1] + strings.Repeat("{}\n", 3),
	}
	for what, content := range damaged {
		r := newRig(t)
		r.Close()
		path := filepath.Join(r.dir, "ses_1.jsonl")
		must(t, os.WriteFile(path, []byte(content), 0o600))
		r.told = nil
		r.open()
		if list := r.List(session); list.Offset != 0 || r.tale() != "" {
			t.Errorf("%s: %+v, told %s", what, list, r.tale())
		}
		if aside, err := os.ReadFile(path + ".damaged"); err != nil || string(aside) != content {
			t.Errorf("%s: not put aside: %v", what, err)
		}
		r.ask("a.example")
	}
}

// TestRewritten: a file is as bounded as the log, and holds what is pending
// though its event is gone.
func TestRewritten(t *testing.T) {
	mem := &memory{}
	l := newLog(Options{Logger: discard}, mem)
	s := l.session(session)
	kept, err := l.Ask(egress("kept.example"))
	must(t, err)
	for i := range maxEvents {
		p, err := l.Ask(egress(fmt.Sprintf("h%d.example", i)))
		must(t, err)
		_, _, err = l.Decide(answer(p.ID(), protocol.AllowOnce))
		must(t, err)
		if n := bytes.Count(mem.data, []byte("\n")); n > maxEvents+1 {
			t.Fatalf("%d lines", n)
		}
	}
	replaced := mem.replaced
	read, _, torn, err := parse(t, mem.data)
	if err != nil || torn || read.next() != s.next() || read.next() != 2*maxEvents+1 || read.len() != s.len() {
		t.Fatalf("%v: %d events of %d", err, read.next(), s.next())
	}
	if pending := read.pendingAt(read.next()); len(pending) != 1 || pending[0].ID != kept.ID() {
		t.Errorf("%+v", pending)
	}
	if replaced > 2*maxEvents/(maxEvents/2)+1 {
		t.Errorf("the file was rewritten %d times", replaced)
	}
	l.Close()
}

var discard = slog.New(slog.DiscardHandler)

// memory is a disk with one file.
type memory struct {
	data     []byte
	replaced int
}

func (m *memory) Read(string) ([]byte, error)        { return m.data, nil }
func (m *memory) Append(_ string, data []byte) error { m.data = append(m.data, data...); return nil }
func (m *memory) Replace(_ string, data []byte) error {
	m.data = data
	m.replaced++
	return nil
}
func (m *memory) Remove(string) error { return nil }

// TestManyFiles: the sessions that are remembered are bounded; the latest stay.
func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 3 {
		id := protocol.SessionID(fmt.Sprintf("ses_%d", i))
		s := &sessionLog{session: id}
		path := filepath.Join(dir, string(id)+suffix)
		must(t, os.WriteFile(path, append(s.Header(protocol.Position{Epoch: 1}), '\n'), 0o600))
		at := time.Now().Add(time.Duration(i-1000) * time.Minute)
		must(t, os.Chtimes(path, at, at))
	}
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	l, err := Open(Options{Dir: dir})
	must(t, err)
	defer l.Close()
	if len(l.sessions) != maxFiles || l.sessions["ses_2"] != nil || l.sessions["ses_3"] == nil {
		t.Errorf("%d sessions", len(l.sessions))
	}
}

// FuzzParse: whatever stands in a file is read or refused, and what is read is
// written the same.
func FuzzParse(f *testing.F) {
	data := written(f)
	f.Add(data)
	f.Add(data[:len(data)-3])
	f.Add(bytes.ReplaceAll(data, []byte("pending"), []byte("expired")))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, _, err := parse(t, data)
		if err != nil {
			return
		}
		again, _, torn, err := parse(t, s.encode())
		if err != nil || torn {
			t.Fatalf("written again it is torn %v, %v", torn, err)
		}
		if !bytes.Equal(again.encode(), s.encode()) {
			t.Fatal("written again it is another")
		}
		s.pendingAt(s.next())
	})
}
