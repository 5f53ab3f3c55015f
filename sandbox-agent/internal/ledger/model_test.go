package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// A watchedJournal knows how much of it is safe from a loss of power, and may
// be out of space.
type watchedJournal struct {
	journalFile
	m *model
}

func (w watchedJournal) Write(p []byte) (int, error) {
	if len(p) > w.m.room {
		n, err := w.journalFile.Write(p[:w.m.room])
		if err != nil {
			return n, err
		}
		return n, unix.ENOSPC
	}
	n, err := w.journalFile.Write(p)
	w.m.size += n
	return n, err
}

func (w watchedJournal) Sync() error {
	w.m.synced = w.m.size
	return w.journalFile.Sync()
}

// A model is what a ledger promises, in the plainest terms.
type model struct {
	dir string
	l   *Ledger
	now time.Time

	room         int // what a write may have
	size, synced int // bytes of the journal

	ran      map[protocol.CommandID]int // executions
	expires  map[protocol.CommandID]time.Time
	running  map[protocol.CommandID]bool   // in this process
	finished map[protocol.CommandID]string // results that were stored
}

const plenty = 1 << 30

func (m *model) open(t *rapid.T) {
	var err error
	m.l, err = Open(m.dir, func() time.Time { return m.now })
	if err != nil {
		t.Fatal(err)
	}
	m.running = make(map[protocol.CommandID]bool)
	m.watch(t)
	m.l.dir.wrap = func(j journalFile) journalFile {
		m.measure(t)
		return watchedJournal{j, m}
	}
	m.l.journal = watchedJournal{m.l.journal, m}
}

func (m *model) watch(t *rapid.T) {
	if err := m.l.Err(); err != nil {
		t.Fatal(err)
	}
	m.measure(t)
}

// measure is called when all of the journal is on disk.
func (m *model) measure(t *rapid.T) {
	st, err := os.Stat(filepath.Join(m.dir, journalName))
	if err != nil {
		t.Fatal(err)
	}
	m.size, m.synced = int(st.Size()), int(st.Size())
}

// begin runs the command, or is told what became of it.
func (m *model) begin(t *rapid.T) {
	id := m.id(t)
	expires := m.now.Add(ttl)
	full := m.room != plenty
	prior, err := m.l.Begin(id, digest, expires)
	switch {
	case err != nil && full && protocol.KindOf(err) == protocol.KindUnavailable:
	case err != nil:
		t.Fatalf("%s: %v", id, err)
	case prior == nil:
		m.ran[id]++
		if m.ran[id] > 1 && !m.now.After(m.expires[id].Add(Retention)) {
			t.Fatalf("%s ran %d times", id, m.ran[id])
		}
		m.running[id], m.expires[id] = true, expires
		delete(m.finished, id)
		if m.synced != m.size {
			t.Fatalf("%s runs before it is on disk", id)
		}
	default:
		m.compare(t, id, prior)
	}
}

func (m *model) compare(t *rapid.T, id protocol.CommandID, e *Entry) {
	result, stored := m.finished[id]
	switch e.State {
	case StateRunning:
		if !m.running[id] {
			t.Fatalf("%s is said to run", id)
		}
	case StateDone:
		if !stored || string(e.Result) != result {
			t.Fatalf("%s returned %q, stored %q", id, e.Result, result)
		}
	case StateUnknown:
		if m.running[id] || m.ran[id] == 0 {
			t.Fatalf("%s is unknown", id)
		}
	}
}

func (m *model) finish(t *rapid.T) {
	id := m.id(t)
	if !m.running[id] {
		return
	}
	result := fmt.Sprintf("result %d", rapid.IntRange(0, 1<<20).Draw(t, "result"))
	err := m.l.Finish(id, []byte(result))
	if err != nil && m.room == plenty {
		t.Fatal(err)
	}
	delete(m.running, id)
	m.finished[id] = result
}

func (m *model) id(t *rapid.T) protocol.CommandID {
	return protocol.CommandID(fmt.Sprintf("cmd_%d", rapid.IntRange(0, 9).Draw(t, "id")))
}

// kill ends the process: what was written stays.
func (m *model) kill(t *rapid.T) { m.reopen(t) }

// losePower may take any part of what wasn't synced, or leave zeros for it.
func (m *model) losePower(t *rapid.T) {
	path := filepath.Join(m.dir, journalName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := rapid.IntRange(min(m.synced, len(data)), len(data)).Draw(t, "cut")
	if rapid.Bool().Draw(t, "zeros") {
		clear(data[cut:])
	} else {
		data = data[:cut]
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m.reopen(t)
}

func (m *model) reopen(t *rapid.T) {
	old := m.l
	m.open(t)
	old.Close()
	for id := range m.ran {
		e, err := m.l.Lookup(id, digest)
		if err != nil {
			t.Fatal(err)
		}
		if e != nil {
			m.compare(t, id, e)
		} else if !m.now.After(m.expires[id].Add(Retention)) {
			t.Fatalf("%s is forgotten", id)
		}
	}
}

// TestModel compares the ledger with its model over commands, kills, losses of
// power and full disks.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "ledger")
		must(t, err)
		m := &model{
			dir: dir, now: time.UnixMilli(1_790_000_000_000), room: plenty,
			ran: make(map[protocol.CommandID]int), expires: make(map[protocol.CommandID]time.Time), finished: make(map[protocol.CommandID]string),
		}
		m.open(rt)
		defer func() { m.l.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"begin": m.begin, "begin again": m.begin, "finish": m.finish, "kill": m.kill, "lose power": m.losePower,
			"fill disk":  func(t *rapid.T) { m.room = rapid.IntRange(0, 200).Draw(t, "room") },
			"clear disk": func(t *rapid.T) { m.room = plenty },
			"compact":    func(*rapid.T) { m.l.compactAt = 0 },
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 800).Draw(t, "seconds")) * time.Second)
			},
			"look": func(t *rapid.T) {
				id := m.id(t)
				if e, err := m.l.Lookup(id, digest); err != nil {
					t.Fatal(err)
				} else if e != nil {
					m.compare(t, id, e)
				}
			},
		})
	})
}
