package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// A signed command names its id and the end of its life, neither of which ever
// changes.
type signedCommand struct {
	id       protocol.CommandID
	deadline time.Time
}

// A clockModel is an agent whose clock jumps, beside the time as it truly is,
// by which the control plane signs.
type clockModel struct {
	dir    string
	l      *Ledger
	now    time.Time     // true
	wrong  time.Duration // by which the agent's clock is ahead
	signed []signedCommand
	ran    map[protocol.CommandID]int
}

func (m *clockModel) clock() time.Time { return m.now.Add(m.wrong) }

// open is what a start of the agent does: what runs is cut short.
func (m *clockModel) open(t *rapid.T) {
	old := m.l
	var err error
	if m.l, err = Open(m.dir, m.clock); err != nil {
		t.Fatal(err)
	}
	if old != nil {
		old.Close()
	}
	if err := m.l.Err(); err != nil {
		t.Fatal(err)
	}
}

// valid is what package jws says of the command's life.
func (m *clockModel) valid(c signedCommand) bool {
	now := m.clock()
	return !c.deadline.Add(-ttl).After(now.Add(protocol.ClockSkew)) && !now.After(c.deadline.Add(protocol.ClockSkew))
}

func (m *clockModel) execute(t *rapid.T, c signedCommand) error {
	if !m.valid(c) {
		return protocol.Errorf(protocol.KindExpired, "by the clock")
	}
	prior, err := m.l.Begin(c.id, digest, c.deadline)
	if prior != nil || err != nil {
		return err
	}
	m.ran[c.id]++
	if m.ran[c.id] > 1 {
		t.Fatalf("%s ran %d times", c.id, m.ran[c.id])
	}
	if rapid.Bool().Draw(t, "finishes") {
		return m.l.Finish(c.id, []byte("made"))
	}
	return nil
}

// sign makes a command and sends it. One that a right clock finds fresh runs,
// once every command that was forgotten is over by that clock.
func (m *clockModel) sign(t *rapid.T) {
	life := time.Duration(rapid.IntRange(1, int(ttl.Milliseconds())).Draw(t, "life")) * time.Millisecond
	c := signedCommand{protocol.CommandID(fmt.Sprintf("cmd_%d", len(m.signed))), m.now.Add(life)}
	latest := time.Time{}
	for _, other := range m.signed {
		if m.ran[other.id] > 0 && other.deadline.After(latest) {
			latest = other.deadline
		}
	}
	m.signed = append(m.signed, c)
	err := m.execute(t, c)
	if m.wrong == 0 && c.deadline.After(latest) && err != nil {
		t.Fatalf("%s doesn't run with a right clock: %v", c.id, err)
	}
}

func (m *clockModel) replay(t *rapid.T) {
	if len(m.signed) == 0 {
		return
	}
	c := m.signed[rapid.IntRange(max(0, len(m.signed)-8), len(m.signed)-1).Draw(t, "which")]
	err := m.execute(t, c)
	if err != nil && protocol.KindOf(err) != protocol.KindExpired && protocol.KindOf(err) != protocol.KindInternal {
		t.Fatalf("%s: %v", c.id, err)
	}
}

// seconds draws a time whose size is anything from a moment to an hour.
func seconds(t *rapid.T, label string) time.Duration {
	most := rapid.SampledFrom([]int{1, 30, 90, 200, 3600}).Draw(t, label+" up to")
	return time.Duration(rapid.IntRange(0, most*1000).Draw(t, label)) * time.Millisecond
}

// TestFound25ModelClockJumps: whichever way the clock jumps, and whenever the
// agent is killed and starts again, no command runs twice, and a right clock
// has no command wait but those signed before the forgotten ones are over.
func TestFound25ModelClockJumps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "ledger")
		must(t, err)
		m := &clockModel{dir: dir, now: time.UnixMilli(1_790_000_000_000), ran: make(map[protocol.CommandID]int)}
		m.open(rt)
		defer func() { m.l.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"sign": m.sign, "sign another": m.sign, "replay": m.replay, "replay another": m.replay,
			"kill and start": m.open,
			"compact":        func(*rapid.T) { m.l.compactAt = 0 },
			"jump ahead":     func(t *rapid.T) { m.wrong += seconds(t, "ahead") },
			"jump back":      func(t *rapid.T) { m.wrong -= seconds(t, "back") },
			"correct":        func(*rapid.T) { m.wrong = 0 },
			"start with a wrong clock": func(t *rapid.T) { // what forgets too early
				m.wrong = time.Hour
				m.open(t)
				m.wrong = 0
			},
			"wait": func(t *rapid.T) { m.now = m.now.Add(seconds(t, "wait")) },
			"lose what isn't synced": func(t *rapid.T) { // results only: the rest is synced before it counts
				path := filepath.Join(m.dir, journalName)
				data, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path, withoutTail(data), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				m.open(t)
			},
		})
	})
}

// withoutTail takes results from the end of a journal.
func withoutTail(data []byte) []byte {
	_, recs, err := decodeJournal(data)
	if err != nil {
		return data
	}
	for i := len(recs) - 1; i >= 0 && recs[i].Op == opFinish; i-- {
		data = data[:len(data)-len(encodeRecord(recs[i]))]
	}
	return data
}

// TestFound25ClockCorrected: the clock jumps an hour ahead, the ledger is opened
// and forgets, the clock is corrected: what ran is still valid by it.
func TestFound25ClockCorrected(t *testing.T) {
	dir := t.TempDir()
	now := time.UnixMilli(1_790_000_000_000)
	reopen := func() *Ledger {
		l, err := Open(dir, func() time.Time { return now })
		must(t, err)
		t.Cleanup(func() { l.Close() })
		must(t, l.Err())
		return l
	}
	l := reopen()
	deadline := now.Add(ttl)
	prior, err := l.Begin("cmd_1", digest, deadline)
	if prior != nil || err != nil {
		t.Fatal(prior, err)
	}
	must(t, l.Finish("cmd_1", []byte("made")))
	now = now.Add(time.Hour)
	reopen() // and killed
	now = now.Add(-time.Hour)
	for range 3 { // it stays so
		l = reopen()
		prior, err = l.Begin("cmd_1", digest, deadline)
		if prior != nil || err == nil {
			t.Fatalf("Begin of what was forgotten = %+v, %v", prior, err)
		}
		wantKind(t, err, protocol.KindExpired)
		if _, err := l.Begin("cmd_earlier", digest, deadline.Add(-time.Second)); !errors.Is(err, ErrForgotten) {
			t.Fatalf("Begin of what may have been forgotten: %v", err)
		}
	}
	if prior, err := l.Begin("cmd_2", digest, deadline.Add(time.Millisecond)); prior != nil || err != nil {
		t.Fatalf("Begin of what is later = %+v, %v", prior, err)
	}
}
