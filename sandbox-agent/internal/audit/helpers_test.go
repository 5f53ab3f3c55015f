package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/jws"
)

func newDevice(t testing.TB) *jws.DeviceKey {
	t.Helper()
	device, err := jws.GenerateDeviceKey()
	must(t, err)
	return device
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, o Options) *Log {
	t.Helper()
	o.Sandbox = sandbox
	l, err := Open(o)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func command(t testing.TB, l *Log, id protocol.CommandID) {
	t.Helper()
	must(t, l.Reserve(t.Context()))
	l.Command(audit.Command{ID: id, Op: "pty.create", Session: "ses_1", Status: protocol.StatusOK})
}

// written is command, and waits until the record is in the file.
func written(t testing.TB, l *Log, id protocol.CommandID) {
	t.Helper()
	command(t, l, id)
	for {
		l.mu.Lock()
		waits, taken := len(l.queue) > 0, l.freed
		l.mu.Unlock()
		if !waits {
			break
		}
		<-taken
	}
	done := make(chan error)
	l.syncs <- done
	must(t, <-done)
}

// verified reads all files of dir as a control plane would.
func verified(dir string, heads ...protocol.AuditHead) (audit.Report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	if err != nil {
		return audit.Report{}, err
	}
	v := audit.NewVerifier(audit.Expect{Sandbox: sandbox, Heads: heads})
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return audit.Report{}, err
		}
		if err := v.File(bytes.NewReader(data)); err != nil {
			break
		}
	}
	return v.Report()
}

func wantKind(t testing.TB, err error, kind protocol.Kind) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		t.Errorf("error %v; want kind %s", err, kind)
	}
}

// freedNow is closed when the writer takes the queue next, or has trouble.
func (l *Log) freedNow() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freed
}
