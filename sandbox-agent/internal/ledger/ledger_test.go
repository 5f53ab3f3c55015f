package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const ttl = protocol.MaxCommandTTL

var digest = sha256.Sum256([]byte("pty.create"))

func open(t testing.TB, dir string) *Ledger {
	t.Helper()
	l, err := Open(dir, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func begin(t testing.TB, l *Ledger, id protocol.CommandID) {
	t.Helper()
	prior, err := l.Begin(id, digest, time.Now().Add(ttl))
	if prior != nil || err != nil {
		t.Fatalf("Begin(%s) = %+v, %v; want a first run", id, prior, err)
	}
}

func wantPrior(t testing.TB, l *Ledger, id protocol.CommandID, state State, result string) {
	t.Helper()
	prior, err := l.Begin(id, digest, time.Now().Add(ttl))
	if err != nil || prior == nil || prior.State != state || string(prior.Result) != result {
		t.Fatalf("Begin(%s) = %+v, %v; want %s %q", id, prior, err, state, result)
	}
}

func wantKind(t testing.TB, err error, kind protocol.Kind) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		t.Fatalf("error %v; want kind %s", err, kind)
	}
}

func TestReplayReturnsTheStoredResult(t *testing.T) {
	l := open(t, t.TempDir())
	if e, err := l.Lookup("cmd_1", digest); e != nil || err != nil {
		t.Fatalf("Lookup before Begin = %+v, %v", e, err)
	}
	begin(t, l, "cmd_1")
	wantPrior(t, l, "cmd_1", StateRunning, "")
	if err := l.Finish("cmd_1", []byte("made")); err != nil {
		t.Fatal(err)
	}
	wantPrior(t, l, "cmd_1", StateDone, "made")
	if e, err := l.Lookup("cmd_1", digest); err != nil || e.State != StateDone {
		t.Fatalf("Lookup = %+v, %v", e, err)
	}
	_, err := l.Begin("cmd_1", sha256.Sum256([]byte("another")), time.Now().Add(ttl))
	wantKind(t, err, protocol.KindConflict)
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	begin(t, l, "cmd_done")
	begin(t, l, "cmd_cut")
	if err := l.Finish("cmd_done", []byte("made")); err != nil {
		t.Fatal(err)
	}
	// No Close: the process was killed.
	for range 2 { // the second Open reads what the first compacted
		l = open(t, dir)
		wantPrior(t, l, "cmd_done", StateDone, "made")
		wantPrior(t, l, "cmd_cut", StateUnknown, "")
	}
}

// TestFullDiskRecovers: a ledger that was refused space says so, and Err finds
// out that there is some again, so that nobody has to try a command.
func TestFullDiskRecovers(t *testing.T) {
	l := open(t, t.TempDir())
	begin(t, l, "cmd_1")
	l.journal = &faultyJournal{journalFile: l.journal, room: 10}
	_, err := l.Begin("cmd_2", digest, time.Now().Add(ttl))
	wantKind(t, err, protocol.KindUnavailable)
	if !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("refused with %q", err)
	}
	must(t, l.Err()) // the disk takes a new journal, which isn't faulty
	begin(t, l, "cmd_2")
	must(t, l.Finish("cmd_1", nil))
	must(t, l.Err())
}

// TestFullDiskAtStart: an agent whose disk is full at its start begins without
// its ledger, refuses commands, and has it when there is room.
func TestFullDiskAtStart(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	begin(t, l, "cmd_1")
	must(t, l.Close())
	obstacle := filepath.Join(dir, journalName+".new")
	must(t, os.Mkdir(obstacle, 0o700)) // stands in for it: no journal can be written
	must(t, os.WriteFile(filepath.Join(obstacle, "x"), nil, 0o600))
	l = open(t, dir)
	if l.Err() == nil {
		t.Error("all well")
	}
	for _, id := range []protocol.CommandID{"cmd_1", "cmd_2"} {
		_, err := l.Begin(id, digest, time.Now().Add(ttl))
		wantKind(t, err, protocol.KindUnavailable)
	}
	if l.Err() == nil {
		t.Error("all well")
	}
	must(t, os.RemoveAll(obstacle))
	wantPrior(t, l, "cmd_1", StateUnknown, "")
	begin(t, l, "cmd_2")
	must(t, l.Err())
}

// TestLost: what a crash took is told once.
func TestLost(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	begin(t, l, "cmd_1")
	begin(t, l, "cmd_2")
	must(t, l.Finish("cmd_2", nil))
	if lost := l.Lost(); len(lost) != 0 {
		t.Errorf("lost %q while it runs", lost)
	}
	for range 2 {
		l = open(t, dir)
		if lost := l.Lost(); len(lost) != 1 || lost[0] != "cmd_1" {
			t.Fatalf("lost %q", lost)
		}
	}
	must(t, l.Noted("cmd_1"))
	must(t, l.Noted("cmd_1"))
	must(t, l.Noted("cmd_2"))
	for range 3 {
		if lost := l.Lost(); len(lost) != 0 {
			t.Errorf("lost again: %q", lost)
		}
		wantPrior(t, l, "cmd_1", StateUnknown, "")
		l = open(t, dir)
	}
}

// TestSyncedBeforeTheRun shows that Begin returns only after an fsync, by a
// journal that fails it.
func TestSyncedBeforeTheRun(t *testing.T) {
	l := open(t, t.TempDir())
	faulty := &faultyJournal{journalFile: l.journal, syncErr: errors.New("I/O error")}
	l.journal = faulty
	_, err := l.Begin("cmd_1", digest, time.Now().Add(ttl))
	wantKind(t, err, protocol.KindUnavailable)
	faulty.syncErr = nil
	_, err = l.Begin("cmd_2", digest, time.Now().Add(ttl))
	wantKind(t, err, protocol.KindUnavailable) // for good: earlier records may be gone too
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	begin(t, l, "cmd_1")
	faulty := &faultyJournal{journalFile: l.journal, room: 10}
	l.journal = faulty
	_, err := l.Begin("cmd_2", digest, time.Now().Add(ttl))
	wantKind(t, err, protocol.KindUnavailable)
	faulty.room = 1 << 20
	begin(t, l, "cmd_2") // there is room again, and the cut record is gone
	l = open(t, dir)
	wantPrior(t, l, "cmd_1", StateUnknown, "")
	wantPrior(t, l, "cmd_2", StateUnknown, "")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentDuplicates(t *testing.T) {
	l := open(t, t.TempDir())
	var wg sync.WaitGroup
	var mu sync.Mutex
	runs, results := 0, make(map[string]int)
	for range 100 {
		wg.Go(func() {
			prior, err := l.Begin("cmd_1", digest, time.Now().Add(ttl))
			if err != nil {
				t.Error(err)
				return
			}
			if prior == nil {
				if err := l.Finish("cmd_1", []byte("made")); err != nil {
					t.Error(err)
				}
			}
			e, err := l.Wait(t.Context(), "cmd_1")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if prior == nil {
				runs++
			}
			results[string(e.Result)]++
		})
	}
	wg.Wait()
	if runs != 1 || results["made"] != 100 {
		t.Fatalf("%d runs, results %v", runs, results)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	l := open(t, t.TempDir())
	begin(t, l, "cmd_1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Wait(ctx, "cmd_1"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	_, err := l.Wait(ctx, "cmd_2")
	wantKind(t, err, protocol.KindNotFound)
}

func TestResultTooLarge(t *testing.T) {
	l := open(t, t.TempDir())
	begin(t, l, "cmd_1")
	wantKind(t, l.Finish("cmd_1", make([]byte, MaxResultBytes+1)), protocol.KindTooLarge)
	wantPrior(t, l, "cmd_1", StateUnknown, "")
	wantKind(t, l.Finish("cmd_1", nil), protocol.KindInternal)
}

// TestRetention keeps an entry until TTL and two skews are over, on disk and
// in memory.
func TestRetention(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		begin(t, l, "cmd_1")
		if err := l.Finish("cmd_1", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl + Retention) // virtual time
		l = open(t, dir)
		if e, err := l.Lookup("cmd_1", digest); e == nil || err != nil {
			t.Fatalf("forgotten at the edge: %v", err)
		}
		time.Sleep(time.Millisecond)
		l = open(t, dir)
		if e, err := l.Lookup("cmd_1", digest); e != nil || err != nil {
			t.Fatalf("kept past its time: %+v, %v", e, err)
		}
	})
}

func TestCompactionWhileRunning(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir)
		l.compactAt = 2 << 10
		begin(t, l, "cmd_running")
		for i := range 10 {
			id := protocol.CommandID(fmt.Sprintf("cmd_%d", i))
			begin(t, l, id)
			if err := l.Finish(id, bytes.Repeat([]byte("x"), 100)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl)
			l.compactAt = min(l.compactAt, 2<<10)
		}
		if len(l.entries) >= 10 {
			t.Fatalf("%d entries: expired ones were not dropped", len(l.entries))
		}
		wantPrior(t, l, "cmd_running", StateRunning, "")
		wantPrior(t, l, "cmd_9", StateDone, string(bytes.Repeat([]byte("x"), 100)))
		l = open(t, dir)
		wantPrior(t, l, "cmd_9", StateDone, string(bytes.Repeat([]byte("x"), 100)))
	})
}

// TestSecondProcess opens one directory twice: the newer ledger owns it, and
// the older one runs nothing more.
func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	older := open(t, dir)
	begin(t, older, "cmd_1")
	newer := open(t, dir)
	wantPrior(t, newer, "cmd_1", StateUnknown, "")
	_, err := older.Begin("cmd_2", digest, time.Now().Add(ttl))
	wantKind(t, err, protocol.KindSuperseded)
	wantKind(t, older.Finish("cmd_1", nil), protocol.KindSuperseded)
	_, err = older.Begin("cmd_3", digest, time.Now().Add(ttl))
	wantKind(t, err, protocol.KindSuperseded)
	begin(t, newer, "cmd_2")
}

func TestClosed(t *testing.T) {
	l := open(t, t.TempDir())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := l.Begin("cmd_1", digest, time.Now().Add(ttl))
	wantKind(t, err, protocol.KindUnavailable)
}

func TestNextGeneration(t *testing.T) {
	dir := t.TempDir()
	for want := uint64(1); want <= 4; want += 2 {
		l := open(t, dir)
		for i := range uint64(2) {
			if got, err := l.NextGeneration(); got != want+i || err != nil {
				t.Fatalf("NextGeneration = %d, %v; want %d", got, err, want+i)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, generationName), []byte("-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir).NextGeneration(); err == nil {
		t.Fatal("a damaged generation was accepted")
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	l := open(t, dir)
	if _, err := l.NextGeneration(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{".": 0o700, journalName: 0o600, generationName: 0o600} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, st.Mode(), err, want)
		}
	}
}

// A faultyJournal fails to sync, or takes only room more bytes.
type faultyJournal struct {
	journalFile
	syncErr error
	room    int
}

func (f *faultyJournal) Write(p []byte) (int, error) {
	if f.syncErr == nil && len(p) > f.room {
		n, err := f.journalFile.Write(p[:f.room])
		return n, errors.Join(err, unix.ENOSPC)
	}
	return f.journalFile.Write(p)
}

func (f *faultyJournal) Sync() error { return errors.Join(f.syncErr, f.journalFile.Sync()) }
