package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sandbox = protocol.SandboxID("sb_1")

var lease = protocol.Lease{Revision: 3, Term: 2, Holder: "usr_1", GrantID: "gr_1", State: protocol.LeaseHeld}

// TestOneLog: what several processes wrote after each other is one chain.
func TestOneLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	device := newDevice(t)
	for i := range 3 {
		l := open(t, Options{Dir: dir, Device: device})
		command(t, l, "cmd_1")
		l.Lease("ses_1", "pty_1", lease, "granted")
		must(t, l.Reserve(t.Context()))
		l.Release()
		must(t, l.Close())
		report, err := verified(dir)
		must(t, err)
		if report.Records[audit.KindCommand] != i+1 || report.Records[audit.KindLease] != i+1 || report.Records[audit.KindResumed] != i {
			t.Errorf("%+v", report)
		}
	}
	for name, want := range map[string]os.FileMode{".": 0o700, audit.FileName(1): 0o600, ownerName: 0o600} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, st.Mode(), err, want)
		}
	}
}

// TestHeadSoon: within a second of silence a head vouches for all records, and
// then nothing more is written.
func TestHeadSoon(t *testing.T) {
	dir, device := t.TempDir(), newDevice(t)
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Options{Dir: dir, Device: device})
		command(t, l, "cmd_1")
		synctest.Wait()
		if _, err := verified(dir); err == nil {
			t.Error("a head at once")
		}
		if head, _, err := l.Head(); head.Sequence != 0 || err != nil {
			t.Errorf("head %+v, %v", head, err)
		}
		time.Sleep(headDelay)
		synctest.Wait()
		report, err := verified(dir)
		must(t, err)
		head, signature, err := l.Head()
		must(t, err)
		if head != report.Head || head.Sequence != 3 || len(signature) == 0 {
			t.Errorf("head %+v, log %+v", head, report)
		}
		time.Sleep(time.Hour)
		if again, _, err := l.Head(); again != head || err != nil {
			t.Errorf("head %+v, %v", again, err)
		}
		must(t, l.Close())
		if again, err := verified(dir, head); err != nil || again.Last != 3 {
			t.Errorf("%+v, %v", again, err)
		}
		if _, _, err := l.Head(); err == nil {
			t.Error("a head of a closed log")
		}
	})
}

// TestHeadOften: in a flood a head comes every 256 records.
func TestHeadOften(t *testing.T) {
	dir, device := t.TempDir(), newDevice(t)
	synctest.Test(t, func(t *testing.T) { // where a slow machine is no silence
		l := open(t, Options{Dir: dir, Device: device})
		for i := range 1000 {
			command(t, l, protocol.CommandID(fmt.Sprintf("cmd_%d", i)))
		}
		must(t, l.Close())
	})
	report, err := verified(dir)
	must(t, err)
	if report.Records[audit.KindCommand] != 1000 || report.Records[audit.KindHead] != 4 {
		t.Errorf("%+v", report.Records)
	}
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	device := newDevice(t)
	l := open(t, Options{Dir: dir, Device: device, MaxFileBytes: 4 << 10, MaxFiles: 3})
	var seen []protocol.AuditHead
	for i := range 200 {
		written(t, l, protocol.CommandID(fmt.Sprintf("cmd_%d", i)))
		if head, _, err := l.Head(); err != nil || head.Sequence > 0 {
			must(t, err)
			seen = append(seen, head)
		}
	}
	must(t, l.Close())
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	must(t, err)
	if len(files) != 3 {
		t.Fatalf("files %q", files)
	}
	var recent []protocol.AuditHead
	first, _ := audit.FileSequence(filepath.Base(files[0]))
	for _, head := range seen {
		if head.Sequence >= first {
			recent = append(recent, head)
		}
	}
	report, err := verified(dir, recent...)
	must(t, err)
	if report.First != first || len(recent) == 0 {
		t.Errorf("%+v", report)
	}
	for _, path := range files {
		if st, err := os.Stat(path); err != nil || st.Size() > 8<<10 {
			t.Errorf("%s: %d bytes", path, st.Size())
		}
	}
	l = open(t, Options{Dir: dir, Device: device})
	must(t, l.Close())
	if again, err := verified(dir); err != nil || again.Last != report.Last+2 {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestKilled goes on after a crash at any byte of what was written last.
func TestKilled(t *testing.T) {
	dir, device := t.TempDir(), newDevice(t)
	l := open(t, Options{Dir: dir, Device: device})
	command(t, l, "cmd_1")
	must(t, l.Close())
	path := filepath.Join(dir, audit.FileName(1))
	data, err := os.ReadFile(path)
	must(t, err)
	for n := 0; n <= len(data); n += 7 {
		must(t, os.WriteFile(path, data[:n], 0o600))
		l := open(t, Options{Dir: dir, Device: device})
		command(t, l, "cmd_2")
		must(t, l.Close())
		report, err := verified(dir)
		if err != nil || l.Err() != nil || report.Records[audit.KindCommand] == 0 {
			t.Fatalf("cut at %d: %+v, %v, %v", n, report, err, l.Err())
		}
		whole := n == 0 || data[n-1] == '\n'
		if torn := strings.Contains(strings.Join(report.Notes, " "), "bytes of a record"); torn == whole && bytes.Contains(data[:n], []byte("\n")) {
			t.Fatalf("cut at %d: notes %q", n, report.Notes)
		}
	}
}

// TestDamaged: a file that isn't as it was written is left alone. The agent
// goes on in another, and says what it found.
func TestDamaged(t *testing.T) {
	dir, device := t.TempDir(), newDevice(t)
	l := open(t, Options{Dir: dir, Device: device})
	command(t, l, "cmd_1")
	command(t, l, "cmd_2")
	must(t, l.Close())
	path := filepath.Join(dir, audit.FileName(1))
	data, err := os.ReadFile(path)
	must(t, err)
	bad := bytes.Replace(data, []byte("cmd_1"), []byte("cmd_9"), 1)
	must(t, os.WriteFile(path, bad, 0o600))
	l = open(t, Options{Dir: dir, Device: device})
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), "record 2 was changed") {
		t.Errorf("said %v", err)
	}
	command(t, l, "cmd_3")
	must(t, l.Close())
	if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, bad) {
		t.Errorf("the damaged file was touched: %v", err)
	}
	if _, err := verified(dir); err == nil || !strings.HasPrefix(err.Error(), "record 2 was changed") {
		t.Errorf("found %v", err)
	}
	must(t, os.Remove(path))
	report, err := verified(dir)
	must(t, err)
	if report.First <= 4 || !strings.Contains(strings.Join(report.Notes, " "), "record 2 was changed") {
		t.Errorf("%+v", report)
	}
}

// TestAnotherKey: a sandbox that was enrolled again begins a log of its own.
func TestAnotherKey(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir, Device: newDevice(t)})
	must(t, l.Close())
	l = open(t, Options{Dir: dir, Device: newDevice(t)})
	if err := l.Err(); err != nil {
		t.Error(err)
	}
	command(t, l, "cmd_1")
	must(t, l.Close())
	data, err := os.ReadFile(filepath.Join(dir, audit.FileName(3)))
	must(t, err)
	v := audit.NewVerifier(audit.Expect{First: 3})
	must(t, v.File(bytes.NewReader(data)))
}

// TestSecondProcess opens one directory twice: the newer log owns it.
func TestSecondProcess(t *testing.T) {
	dir, device := t.TempDir(), newDevice(t)
	older := open(t, Options{Dir: dir, Device: device})
	written(t, older, "cmd_1")
	newer := open(t, Options{Dir: dir, Device: device})
	older.Lease("ses_1", "pty_1", lease, "granted")
	for told := older.freedNow(); older.Err() == nil; told = older.freedNow() {
		<-told
	}
	wantKind(t, older.Reserve(t.Context()), protocol.KindSuperseded)
	command(t, newer, "cmd_2")
	if err := older.Close(); err == nil {
		t.Error("closed as if all were written")
	}
	must(t, newer.Close())
	if report, err := verified(dir); err != nil || report.Records[audit.KindCommand] != 2 {
		t.Errorf("%+v, %v", report, err)
	}
}

// A fullDisk takes only so many bytes.
type fullDisk struct {
	target
	room *atomic.Int64
}

var errNoSpace = errors.New("no space left on device")

func (f fullDisk) Write(p []byte) (int, error) {
	if room := f.room.Load(); int64(len(p)) > room {
		n, err := f.target.Write(p[:room])
		return n, errors.Join(err, errNoSpace)
	}
	return f.target.Write(p)
}

// TestFullDisk: nothing waits for a full disk, no command runs unrecorded, what
// couldn't be kept is counted, and the log is whole once there is room again.
func TestFullDisk(t *testing.T) {
	dir, device := t.TempDir(), newDevice(t)
	synctest.Test(t, func(t *testing.T) {
		var room atomic.Int64
		room.Store(1 << 20)
		changed := make(chan struct{}, 10)
		l := open(t, Options{Dir: dir, Device: device, Changed: changed})
		synctest.Wait()
		l.writer.file = fullDisk{l.writer.file, &room}
		command(t, l, "cmd_1")
		must(t, l.Reserve(t.Context())) // a command that runs while the disk fills up
		time.Sleep(2 * headDelay)
		room.Store(10)
		l.Lease("ses_1", "pty_1", lease, "granted")
		synctest.Wait() // the writer has failed, and takes nothing more
		for range 3*maxQueued - 1 {
			l.Lease("ses_1", "pty_1", lease, "granted")
		}
		time.Sleep(2 * retryDelay)
		if err := l.Err(); !errors.Is(err, errNoSpace) {
			t.Errorf("said %v", err)
		}
		wantKind(t, l.Reserve(t.Context()), protocol.KindUnavailable)
		l.Command(audit.Command{ID: "cmd_2", Status: protocol.StatusOK})
		room.Store(100 << 20)
		time.Sleep(2 * retryDelay)
		must(t, l.Err())
		command(t, l, "cmd_3")
		must(t, l.Close())
		report, err := verified(dir)
		must(t, err)
		if report.Records[audit.KindCommand] != 3 || report.Records[audit.KindLost] != 1 || len(changed) != 2 {
			t.Errorf("%+v, %d changes", report, len(changed))
		}
		if total := uint64(report.Records[audit.KindLease]) + l.Lost(); total != 3*maxQueued {
			t.Errorf("%d lease changes accounted for", total)
		}
	})
}

// TestApproval: what was decided and what has expired is recorded, with nothing
// of what is pending, and what finds no room is counted apart from leases.
func TestApproval(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir, Device: newDevice(t)})
	egress := protocol.Approval{
		ID: "apr_1", Revision: 1, Kind: protocol.ApprovalEgress, SessionID: "ses_1", PTYID: "pty_1",
		Host: "2001:db8::1", Port: 443, State: protocol.ApprovalPending,
	}
	l.Approval(egress)
	egress.State, egress.Decision, egress.UserID, egress.GrantID = protocol.ApprovalDecided, protocol.AllowOnce, "usr_1", "gr_1"
	l.Approval(egress)
	l.Approval(protocol.Approval{
		ID: "apr_2", Kind: protocol.ApprovalBroker, SessionID: "ses_1", Host: "a.example", Secret: "TOKEN", State: protocol.ApprovalExpired,
	})
	tool := protocol.Approval{
		ID: "apr_3", Kind: protocol.ApprovalTool, SessionID: "ses_1", ConversationID: "c-1", Tool: "Bash", InputSHA256: "ab",
		State: protocol.ApprovalPending,
	}
	l.Approval(tool)
	tool.State, tool.Decision, tool.Remember, tool.CommandID = protocol.ApprovalDecided, protocol.AllowAlways, "Bash(ls:*)", "cmd_1"
	l.Approval(tool)
	tool.State, tool.Decision, tool.Remember, tool.CommandID = protocol.ApprovalCancelled, "", "", ""
	l.Approval(tool)
	l.Sync(audit.Sync{Session: "ses_1", Pairing: "pr_1", User: "usr_1", Hostname: "laptop", Sequence: 7, Written: 2, Dropped: 1})
	for range maxQueued - commandRoom {
		must(t, l.Reserve(t.Context()))
	}
	l.Approval(egress)
	l.Lease("ses_1", "pty_1", lease, "granted")
	l.Approval(egress)
	l.Sync(audit.Sync{Session: "ses_1", Pairing: "pr_1", Sequence: 8})
	must(t, l.Close())
	if l.Lost() != 4 {
		t.Errorf("lost %d", l.Lost())
	}
	data, err := os.ReadFile(filepath.Join(dir, audit.FileName(1)))
	must(t, err)
	for _, want := range []string{
		`"approval":{"id":"apr_1","session":"ses_1","pty":"pty_1","about":"egress [2001:db8::1]:443","decision":"allow_once","user":"usr_1","grant":"gr_1"}`,
		`"approval":{"id":"apr_2","session":"ses_1","about":"broker TOKEN to a.example","decision":"expired"}`,
		`"approval":{"id":"apr_3","session":"ses_1","about":"tool Bash in conversation c-1, input sha256:ab","decision":"allow_always","remember":"Bash(ls:*)","command":"cmd_1"}`,
		`"approval":{"id":"apr_3","session":"ses_1","about":"tool Bash in conversation c-1, input sha256:ab","decision":"cancelled"}`,
		`"sync":{"session":"ses_1","pairing":"pr_1","user":"usr_1","hostname":"laptop","sequence":7,"written":2,"dropped":1,"refused":0}`,
		`"lost":{"leases":1,"approvals":2,"syncs":1}`,
	} {
		if n := strings.Count(string(data), want); n != 1 {
			t.Errorf("%d times %s in\n%s", n, want, data)
		}
	}
	report, err := verified(dir)
	must(t, err)
	if report.Records[audit.KindApproval] != 4 || report.Records[audit.KindSync] != 1 || report.Records[audit.KindLost] != 1 {
		t.Errorf("%+v", report)
	}
}

// TestReserveWaits: commands wait for room, as long as they may.
func TestReserveWaits(t *testing.T) {
	l := open(t, Options{Dir: t.TempDir(), Device: newDevice(t)})
	for range maxQueued {
		must(t, l.Reserve(t.Context()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { wantKind(t, l.Reserve(ctx), protocol.KindUnavailable) })
	cancel()
	waiting.Wait()
	waiting.Go(func() { must(t, l.Reserve(t.Context())) })
	l.Release()
	waiting.Wait()
	for range maxQueued {
		l.Release()
	}
	must(t, l.Close())
	wantKind(t, l.Reserve(t.Context()), protocol.KindUnavailable)
	l.Lease("ses_1", "pty_1", lease, "too late")
	if l.Lost() != 1 {
		t.Errorf("lost %d", l.Lost())
	}
}

// TestNoDirectory: an agent whose disk can't hold a log starts, refuses
// commands, and goes on when it can.
func TestNoDirectory(t *testing.T) {
	device := newDevice(t)
	parent := filepath.Join(t.TempDir(), "state")
	must(t, os.WriteFile(parent, nil, 0o600))
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Options{Dir: filepath.Join(parent, "audit"), Device: device})
		if l.Err() == nil {
			t.Error("all well")
		}
		wantKind(t, l.Reserve(t.Context()), protocol.KindUnavailable)
		l.Lease("ses_1", "pty_1", lease, "granted")
		must(t, os.Remove(parent))
		time.Sleep(2 * retryDelay)
		must(t, l.Err())
		command(t, l, "cmd_1")
		must(t, l.Close())
	})
	if report, err := verified(filepath.Join(parent, "audit")); err != nil || report.Records[audit.KindLease] != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestConcurrent: records of many goroutines make one chain.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Options{Dir: dir, Device: newDevice(t), MaxFileBytes: 16 << 10})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				if i%2 == 0 {
					command(t, l, protocol.CommandID(rand.Text()))
				} else {
					l.Lease("ses_1", "pty_1", lease, "granted")
				}
			}
		})
	}
	all.Wait()
	must(t, l.Close())
	report, err := verified(dir)
	must(t, err)
	if report.Records[audit.KindCommand] != 200 || report.Records[audit.KindLease] != 200 || l.Lost() != 0 {
		t.Errorf("%+v", report.Records)
	}
}

func BenchmarkLease(b *testing.B) {
	l := open(b, Options{Dir: b.TempDir(), Device: newDevice(b)})
	b.ReportAllocs()
	for b.Loop() {
		l.Lease("ses_1", "pty_1", lease, "granted")
	}
	b.ReportMetric(float64(l.Lost()), "lost")
}
