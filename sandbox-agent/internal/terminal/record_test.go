package terminal

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

func newStore(t *testing.T, o recording.Options) *recording.Store {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "recordings")
	store, err := recording.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// recordBubble runs f with a rig and a store of recordings in virtual time.
func recordBubble(t *testing.T, f func(t *testing.T, r *rig, store *recording.Store)) {
	t.Helper()
	store := newStore(t, recording.Options{})
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		f(t, r, store)
	})
}

func (r *rig) record(t *testing.T, store *recording.Store) string {
	t.Helper()
	id, err := r.startRecording(store)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return id
}

// played spells a recording: each event as [seconds code data].
func played(t *testing.T, store *recording.Store, id string) (string, protocol.RecordingInfo) {
	t.Helper()
	c, err := store.Read(session, id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b strings.Builder
	lines := bufio.NewScanner(c)
	lines.Buffer(nil, 1<<26)
	lines.Scan() // the header
	for lines.Scan() {
		var at float64
		var code, data string
		if err := json.Unmarshal(lines.Bytes(), &[]any{&at, &code, &data}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "[%g %s %s]", at, code, data)
	}
	return b.String(), c.Info
}

func wantPlayed(t *testing.T, store *recording.Store, id, want string) protocol.RecordingInfo {
	t.Helper()
	got, info := played(t, store, id)
	if got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	return info
}

func TestRecording(t *testing.T) {
	recordBubble(t, func(t *testing.T, r *rig, store *recording.Store) {
		v := r.attach(t, nil)
		v.propose(alice)
		r.print("before")
		id := r.record(t, store)
		if m := want[protocol.Recording](v); m.ID != id {
			t.Errorf("announced %+v, want %s", m, id)
		}
		late := r.attach(t, nil).opened
		if r.Info().Recording != id || late.Recording != id || len(late.Pacers) != 1 || late.Pacers[0].ID != "recording" {
			t.Errorf("info %+v, opened %+v", r.Info(), late)
		}
		_, err := r.startRecording(store)
		wantKind(t, err, protocol.KindConflict)
		time.Sleep(1500 * time.Millisecond)
		r.print("é"[:1])
		time.Sleep(500 * time.Millisecond)
		r.print("é"[1:])
		v.Resize(protocol.Resize{Term: 1, Cols: 100, Rows: 30})
		synctest.Wait()
		time.Sleep(flushEvery)
		synctest.Wait()
		wanted := "[0 o [6 bytes, 80x24]][2 o é][2 r 100x30]"
		if info := wantPlayed(t, store, id, wanted); info.EndedAt != 0 { // what runs can be read
			t.Errorf("%+v", info)
		}
		r.dev.output <- []byte("last")
		synctest.Wait()
		stopped, err := r.stopRecording()
		if err != nil || stopped != id {
			t.Fatal(stopped, err)
		}
		info := wantPlayed(t, store, id, wanted+"[3 o last]")
		if info.EndedAt-info.StartedAt != 3000 || info.Note != "" || info.PTYID != "pty_1" || info.Cols != 80 {
			t.Errorf("%+v", info)
		}
		for {
			if m, ok := v.next().(protocol.Recording); ok {
				if m.ID != "" {
					t.Errorf("announced %+v", m)
				}
				break
			}
		}
		if late := r.attach(t, nil).opened; r.Info().Recording != "" || late.Recording != "" || late.Pacers != nil {
			t.Errorf("info %+v, opened %+v", r.Info(), late)
		}
		_, err = r.stopRecording()
		wantKind(t, err, protocol.KindNotFound)
		if again := r.record(t, store); again == id {
			t.Error("an id was used twice")
		}
	})
}

// TestRecordingEndsWithTheProgram: it holds the last byte, and is complete once
// the terminal is gone.
func TestRecordingEndsWithTheProgram(t *testing.T) {
	recordBubble(t, func(t *testing.T, r *rig, store *recording.Store) {
		id := r.record(t, store)
		r.print("bye")
		close(r.dev.output)
		r.proc.exit(0)
		<-r.life.gone
		if info := wantPlayed(t, store, id, "[0 o bye]"); info.EndedAt == 0 {
			t.Errorf("%+v", info)
		}
		_, err := r.startRecording(store)
		wantKind(t, err, protocol.KindEnded)
		_, err = r.stopRecording()
		wantKind(t, err, protocol.KindNotFound)
	})
}

// TestRecordingFails: one that reaches its limit ends, and the terminal goes on.
func TestRecordingFails(t *testing.T) {
	store := newStore(t, recording.Options{MaxBytes: 1 << 20})
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		id := r.record(t, store)
		wantHeld(t, r.flood(all), all)
		if info := r.Info(); info.Recording != "" {
			t.Errorf("still recorded: %+v", info)
		}
		_, info := played(t, store, id)
		if info.EndedAt == 0 || info.Note == "" || info.Bytes > 1<<20 {
			t.Errorf("%+v", info)
		}
	})
}

func TestRecordingHoldsBack(t *testing.T) {
	recordBubble(t, func(t *testing.T, r *rig, store *recording.Store) {
		r.print("x")
		rec, params, first, err := r.beginRecording() // and its disk takes long
		if err != nil || string(first) != "[1 bytes, 80x24]" {
			t.Fatal(err, string(first))
		}
		wantHeld(t, r.flood(all), lag+1)
		if _, err := r.stopRecording(); err == nil {
			t.Error("stopped what has not begun")
		}
		time.Sleep(protocol.SlowAfter)
		end := r.flood(all)
		wantHeld(t, end, lag+all)
		// The output in between is lost; the screen goes on.
		tape, err := store.Create(params)
		if err != nil {
			t.Fatal(err)
		}
		r.recordings.mu.Lock()
		rec.tape = tape
		r.recordings.mu.Unlock()
		go func() { // ended below
			defer r.life.followers.Done()
			rec.run(tape)
		}()
		synctest.Wait()
		id, err := r.stopRecording()
		if err != nil {
			t.Fatal(err)
		}
		wantPlayed(t, store, id, fmt.Sprintf("[2 r 80x24][2 o [%d bytes, 80x24]]", end))
	})
}

// TestRecordedFromTheStart creates a terminal that is recorded from its first
// byte.
func TestRecordedFromTheStart(t *testing.T) {
	h := realHost(t, IsolationNone)
	_, err := h.Create(t.Context(), session, "", op.PTYCreate{Record: true})
	wantKind(t, err, protocol.KindUnsupported)
	h.config.Recordings = newStore(t, recording.Options{})
	p := unechoed("echo first; cat")
	p.Record = true
	u := sitDown(t, h, p)
	u.expect("first\n")
	if u.opened.Recording == "" {
		t.Errorf("%+v", u.opened)
	}
	_, err = h.StartRecording(session, u.id)
	wantKind(t, err, protocol.KindConflict)
	u.enter("second")
	u.expect("second")
	id, err := h.StopRecording(session, u.id)
	if err != nil || id != u.opened.Recording {
		t.Fatal(id, err)
	}
	got, info := played(t, h.config.Recordings, id)
	// A recorder that is late has both in one event.
	if got = strings.ReplaceAll(got, "first\nsecond", "first\n] [second"); !strings.Contains(got, " o first\n]") || !strings.HasSuffix(got, "second]") || info.PTYID != u.id || info.Command == "" {
		t.Errorf("%q, %+v", got, info)
	}
	id, err = h.StartRecording(session, u.id)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(session, u.id); err != nil {
		t.Fatal(err)
	}
	if _, info := played(t, h.config.Recordings, id); info.EndedAt == 0 {
		t.Errorf("%+v", info)
	}
	_, err = h.StartRecording(session, u.id)
	wantKind(t, err, protocol.KindNotFound)
	_, err = h.StopRecording(session, u.id)
	wantKind(t, err, protocol.KindNotFound)
}

// TestSpill: what the window has dropped is read from the disk, in order and
// with its sizes, and is gone with the terminal.
func TestSpill(t *testing.T) {
	store, err := spill.Open(spill.Options{Dir: t.TempDir(), PerTerminal: 16 << 20, Total: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := realHost(t, IsolationNone)
	h.config.Spill = store
	const parts, lines = 10, 1_000_000
	p := unechoed(fmt.Sprintf("stty size; for i in $(seq 0 %d); do seq $((i * %[2]d + 1)) $(((i + 1) * %[2]d)); read x; done", parts-1, lines/parts))
	p.Cols, p.Rows = 90, 30
	u := sitDown(t, h, p)
	for part := range parts { // each after the disk has the one before
		last := fmt.Sprintf("\n%d\n", (part+1)*lines/parts)
		for !strings.HasSuffix(u.seen.String(), last) {
			u.read()
			u.seen.Next(max(0, u.seen.Len()-2000))
		}
		for u.terminal.transcript.Spilled() < u.head {
			<-time.After(time.Millisecond)
		}
		if part == parts-2 {
			u.Resize(protocol.Resize{Term: u.term, Cols: 100, Rows: 30})
		}
		u.enter("\n")
	}
	<-u.terminal.life.gone // it waits for the disk
	reading, opened, err := u.terminal.Read(protocol.ReadParams{Epoch: u.opened.Epoch, To: 1 << 60})
	if err != nil || opened.From != 0 || opened.To != u.head || opened.Cols != 90 {
		t.Fatalf("%+v %v", opened, err)
	}
	var want strings.Builder
	want.WriteString("30 90\n")
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	got := spell(t, reading, opened)
	if before, after, ok := strings.Cut(got, "<100>"); !ok || before+after != want.String() {
		t.Errorf("%d bytes, want %d", len(got), want.Len())
	}
	if store.Bytes() == 0 {
		t.Error("nothing is on disk")
	}
	if err := h.Close(session, u.id); err != nil {
		t.Fatal(err)
	}
	if n := store.Bytes(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	if m, err := reading.Next(); err != io.EOF {
		t.Error(m, err)
	}
}
