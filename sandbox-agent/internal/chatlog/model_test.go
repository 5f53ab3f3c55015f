package chatlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// small is a Store whose segments and memory are so small that tests see their
// ends.
func small(t interface{ Fatal(...any) }, o Options, boot string, d disk) *Store {
	if d == nil {
		d = &lazy{}
	}
	s, err := open(o, newRoom(600, 400, boot, d))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A model is a log beside the slice that it should be.
type model struct {
	dir   string
	boot  int
	store *Store
	log   *Log
	want  []Entry
	// followers, and what each has seen
	following []*modelFollower
	unsettled bool
}

type modelFollower struct {
	f    *Follower
	next int // index of the next entry in want
}

// TestModel does what callers may, in any order, with a log and with a slice.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "chatlog")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &model{dir: dir}
		m.open(t)
		defer func() { m.store.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"append":    m.append,
			"read":      m.read,
			"subscribe": m.subscribe,
			"follow":    m.follow,
			"live":      func(t *rapid.T) { m.log.Live(rapid.Bool().Draw(t, "live")) },
			"reopen":    m.reopen,
			"rewrite":   m.rewrite,
			"":          m.check,
		})
	})
}

func (m *model) open(t *rapid.T) {
	m.store = small(t, Options{Dir: m.dir}, fmt.Sprint(m.boot), nil)
	var err error
	if m.log, err = m.store.Log(conversation); err != nil {
		t.Fatal(err)
	}
}

func (m *model) append(t *rapid.T) {
	var events []*protocol.ChatEvent
	for i := range rapid.IntRange(1, 5).Draw(t, "events") {
		e := said(strings.Repeat("a secret ", rapid.IntRange(0, 30).Draw(t, "size")))
		if rapid.Bool().Draw(t, "user") {
			e.Role, e.CommandID = "user", protocol.CommandID(fmt.Sprintf("cmd_%d_%d", len(m.want), i))
		}
		events = append(events, e)
	}
	m.unsettled = false
	last := m.log.Position().Last
	if err := m.log.Append(rapid.Bool().Draw(t, "sync"), events...); err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if e.Seq != last+1+uint64(i) {
			t.Fatalf("number %d behind %d", e.Seq, last)
		}
		text, _, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		m.want = append(m.want, Entry{Seq: e.Seq, Origin: origin(e), JSON: text})
	}
}

// from returns the index of the first event numbered above after.
func (m *model) from(after uint64) int {
	for i, e := range m.want {
		if e.Seq > after {
			return i
		}
	}
	return len(m.want)
}

func same(a, b Entry) bool {
	return a.Seq == b.Seq && a.Origin == b.Origin && bytes.Equal(a.JSON, b.JSON)
}

// mark draws a number that a client may have.
func (m *model) mark(t *rapid.T) uint64 {
	i := rapid.IntRange(-1, len(m.want)-1).Draw(t, "mark")
	if i < 0 {
		return 0
	}
	return m.want[i].Seq
}

func (m *model) read(t *rapid.T) {
	after, until := m.mark(t), m.mark(t)
	r, _ := m.log.Read(after, until)
	defer r.Close()
	for i := m.from(after); i < m.from(until); i++ {
		if e, err := r.Next(); err != nil || !same(e, m.want[i]) {
			t.Fatalf("%+v %v, want %+v", e, err, m.want[i])
		}
	}
	if e, err := r.Next(); err == nil {
		t.Fatalf("%+v beyond the end", e)
	}
}

func (m *model) subscribe(t *rapid.T) {
	if len(m.following) == 4 {
		m.following[0].f.Close()
		m.following = m.following[1:]
	}
	after := m.mark(t)
	f, at := m.log.Subscribe(after)
	if !at.Covers(after) {
		t.Fatalf("%d is not covered by %+v", after, at)
	}
	m.following = append(m.following, &modelFollower{f: f, next: m.from(after)})
}

func (m *model) follow(t *rapid.T) {
	for _, f := range m.following {
		for range rapid.IntRange(0, 10).Draw(t, "taken") {
			e, ok, err := f.f.Ready()
			var reset *Reset
			switch {
			case errors.As(err, &reset):
				if f.next != m.from(reset.Last) {
					t.Fatalf("a follower at %d is put behind %d", f.next, reset.Last)
				}
			case err != nil:
				t.Fatal(err)
			case !ok:
				if f.next != len(m.want) {
					t.Fatalf("a follower misses %+v", m.want[f.next])
				}
			case f.next == len(m.want) || !same(e, m.want[f.next]):
				t.Fatalf("a follower gets %+v", e)
			default:
				f.next++
			}
		}
	}
}

func (m *model) reopen(t *rapid.T) {
	for _, f := range m.following {
		f.f.Close()
	}
	m.following = nil
	was := m.log.Position()
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
	other := rapid.Bool().Draw(t, "another boot")
	if other {
		m.boot++
		m.unsettled = true // until the new epoch is on disk
	}
	m.open(t)
	now := m.log.Position()
	if now.Last < was.Last || len(m.want) > 0 && !m.unsettled && now.Epoch != was.Epoch || other && now.Epoch == was.Epoch {
		t.Fatalf("%+v became %+v, another boot: %t", was, now, other)
	}
}

func (m *model) rewrite(t *rapid.T) {
	secret := rapid.SampledFrom([]string{"secret", "cret ", "nothing"}).Draw(t, "secret")
	mask := func(json []byte) []byte { return bytes.ReplaceAll(json, []byte(secret), []byte("****")) }
	changes := false
	for i, e := range m.want {
		m.want[i].JSON = mask(e.JSON)
		changes = changes || !bytes.Equal(m.want[i].JSON, e.JSON)
	}
	was := m.log.Position()
	changed, err := m.log.Rewrite(mask)
	now := m.log.Position()
	if err != nil || changed != changes || now.Last != was.Last || now.First != was.First || (now.Epoch != was.Epoch) != changes {
		t.Fatalf("%t %v, want %t; %+v became %+v", changed, err, changes, was, now)
	}
}

func (m *model) check(t *rapid.T) {
	at := m.log.Position()
	if len(m.want) > 0 && (at.First != m.want[0].Seq || at.Last < m.want[len(m.want)-1].Seq) {
		t.Fatalf("%+v for %d … %d", at, m.want[0].Seq, m.want[len(m.want)-1].Seq)
	}
	var bytes int64
	entries, err := os.ReadDir(m.store.Folder(conversation))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	if c := m.store.Counts(); c.Bytes != bytes || c.Damaged != 0 || c.DroppedSegments != 0 {
		t.Fatalf("%+v, on disk are %d bytes", c, bytes)
	}
}
