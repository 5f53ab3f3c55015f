package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
)

// auditLog writes a log of n commands, with a head after every third and at the
// end, and returns its lines and the newest head with its signature.
func (b *testSandbox) auditLog(t *testing.T, n int) (lines [][]byte, head protocol.AuditHead, signature []byte) {
	t.Helper()
	key, err := audit.ParseKey(b.device.PublicJWK())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1000, 0)
	var chain audit.Chain
	log := chain.Append(nil, audit.Record{At: at.UnixMilli(), Opened: &audit.Opened{
		Format: audit.Format, Sandbox: b.id, Device: key.Thumbprint(), Key: key,
	}})
	for i := range n {
		log = chain.Append(log, audit.Record{At: at.UnixMilli(), Command: &audit.Command{
			ID: protocol.CommandID(fmt.Sprintf("cmd_%d", i)), Trace: "tr_1", Op: "pty.create", Status: "ok",
		}})
		if i%3 == 2 || i == n-1 {
			if log, head, signature, err = chain.AppendHead(log, b.id, at, b.device.Sign); err != nil {
				t.Fatal(err)
			}
		}
	}
	for line := range bytes.Lines(log) {
		lines = append(lines, line)
	}
	return lines, head, signature
}

func TestAuditHead(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b, other := p.enrolled(srv, "sb_1"), p.enrolled(srv, "sb_2")
	a := connect(t, srv)
	_, old, oldSignature := b.auditLog(t, 3)
	_, head, signature := b.auditLog(t, 9)
	forked := head
	forked.Hash = old.Hash
	request := func(b *testSandbox, head protocol.AuditHead, signature []byte) protocol.AuditHeadRequest {
		return protocol.AuditHeadRequest{Certificate: b.certificate, Head: head, Signature: signature}
	}
	upper := head
	upper.Hash = strings.ToUpper(head.Hash)
	for _, tt := range []struct {
		name   string
		req    protocol.AuditHeadRequest
		status int
	}{
		{"the first", request(b, old, oldSignature), http.StatusNoContent},
		{"a later one", request(b, head, signature), http.StatusNoContent},
		{"the same again", request(b, head, signature), http.StatusNoContent},
		{"an older one", request(b, old, oldSignature), http.StatusConflict},
		{"another hash", request(b, forked, b.sign(t, protocol.AuditTranscript("sb_1", forked.Sequence, forked.Hash))), http.StatusConflict},
		{"signature of another record", request(b, head, oldSignature), http.StatusUnauthorized},
		{"another sandbox's certificate", request(other, head, signature), http.StatusForbidden},
		{"no certificate", protocol.AuditHeadRequest{Head: head, Signature: signature}, http.StatusUnauthorized},
		{"another spelling", request(b, upper, signature), http.StatusBadRequest},
		{"sequence 0", request(b, protocol.AuditHead{SandboxID: "sb_1", Hash: head.Hash}, signature), http.StatusBadRequest},
	} {
		if status, answer := a.post("/audit/head", tt.req); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, answer, tt.status)
		}
	}
	kept, err := p.server.store.Fleet.AuditHead(t.Context(), "sb_1")
	if err != nil || kept.Hash != head.Hash || kept.Sequence != head.Sequence {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

// auditFiles writes a head and the device key into dir.
func (b *testSandbox) auditFiles(t *testing.T, dir string, head protocol.AuditHead) (headFile, keyFile string) {
	t.Helper()
	data, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	headFile, keyFile = filepath.Join(dir, "head.json"), filepath.Join(dir, "device.jwk")
	writeFile(t, headFile, data, 0o600)
	writeFile(t, keyFile, b.device.PublicJWK(), 0o600)
	return headFile, keyFile
}

func TestVerifyAudit(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	lines, head, signature := b.auditLog(t, 9) // records 1 to 13, heads 5, 9 and 13
	if status, answer := connect(t, srv).post("/audit/head", protocol.AuditHeadRequest{
		Certificate: b.certificate, Head: head, Signature: signature,
	}); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, answer)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, audit.FileName(1))
	headFile, keyFile := b.auditFiles(t, dir, head)
	join := func(parts ...[][]byte) []byte {
		var all []byte
		for _, part := range parts {
			all = append(all, bytes.Join(part, nil)...)
		}
		return all
	}
	changed := bytes.Replace(lines[6], []byte(`"ok"`), []byte(`"error"`), 1)
	foreign, _, _ := newTestSandbox(t, "sb_1").auditLog(t, 9)
	for _, tt := range []struct {
		name     string
		log      []byte
		line     int // 0: as it was written
		sequence uint64
		nature   audit.Nature
	}{
		{"whole", join(lines), 0, 0, ""},
		{"deleted", join(lines[:6], lines[7:]), 7, 7, audit.Deleted},
		{"changed", join(lines[:6], [][]byte{changed}, lines[7:]), 7, 7, audit.Changed},
		{"swapped", join(lines[:6], lines[7:8], lines[6:7], lines[8:]), 7, 7, audit.Reordered},
		{"repeated", join(lines[:6], lines[4:]), 7, 5, audit.Reordered},
		{"cut behind a head", join(lines[:9]), 10, 10, audit.CutOff},
		{"cut elsewhere", join(lines[:8]), 9, 9, audit.CutOff},
		{"of another device", join(foreign), 1, 1, audit.Foreign},
		{"empty", nil, 1, 1, audit.CutOff},
	} {
		writeFile(t, file, tt.log, 0o600)
		for against, cfg := range map[string]fleet.AuditConfig{
			"the store": {Files: []string{dir}, Location: statedir.Location{StateDir: filepath.Join(p.dir, "state")}, Sandbox: "sb_1", Settle: -1},
			"files":     {Files: []string{file}, Head: headFile, DeviceKey: keyFile, Settle: -1},
		} {
			report, err := fleet.VerifyAudit(t.Context(), cfg)
			fault, _ := errors.AsType[*audit.Fault](err)
			if tt.line == 0 {
				if err != nil || report.Last != 13 {
					t.Errorf("%s, against %s: %+v, %v", tt.name, against, report, err)
				}
				continue
			}
			if fault == nil || fault.Sequence != tt.sequence || fault.Nature != tt.nature || report.Line != tt.line ||
				!strings.HasPrefix(err.Error(), fmt.Sprintf("%s:%d: record %d ", file, tt.line, tt.sequence)) {
				t.Errorf("%s, against %s: line %d, %v; want line %d, record %d %s", tt.name, against, report.Line, err, tt.line, tt.sequence, tt.nature)
			}
		}
	}
}

// TestVerifyWhileWritten: the last records of a log that an agent is writing have
// no head yet. That is no fault as long as its heads go on.
func TestVerifyWhileWritten(t *testing.T) {
	b := newTestSandbox(t, "sb_1")
	lines, _, _ := b.auditLog(t, 9) // heads are 5, 9 and 13
	file := filepath.Join(t.TempDir(), audit.FileName(1))
	write := func(n int) { // never seen half done
		writeFile(t, file+".new", bytes.Join(lines[:n], nil), 0o600)
		if err := os.Rename(file+".new", file); err != nil {
			t.Error(err)
		}
	}
	verify := func(then int) (fleet.AuditReport, error) {
		return fleet.VerifyAudit(t.Context(), fleet.AuditConfig{Files: []string{file}, Wait: func(_ context.Context, long time.Duration) error {
			if long != fleet.AuditSettle {
				t.Errorf("an agent gets %v", long)
			}
			write(then)
			return nil
		}})
	}
	for name, c := range map[string]struct{ at, then, last int }{
		"a head comes":                 {7, 9, 9},
		"a head, and more behind it":   {7, 11, 11},
		"one after the other, no head": {7, 8, 0},
		"nothing":                      {7, 7, 0},
	} {
		write(c.at)
		report, err := verify(c.then)
		if c.last > 0 && (err != nil || report.Last != uint64(c.last) || report.Line != 0) {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
		if fault, _ := errors.AsType[*audit.Fault](err); c.last == 0 && (fault == nil || fault.Nature != audit.CutOff) {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
	write(7)
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := verify(9); err == nil {
		t.Error("a log that nobody writes is whole without a head")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	write(7)
	if _, err := fleet.VerifyAudit(ctx, fleet.AuditConfig{Files: []string{file}}); !errors.Is(err, context.Canceled) {
		t.Errorf("who is told to end waits for an agent: %v", err)
	}
}

// TestVerifyAuditFiles: lines are counted in the file that they stand in.
func TestVerifyAuditFiles(t *testing.T) {
	b := newTestSandbox(t, "sb_1")
	key, err := audit.ParseKey(b.device.PublicJWK())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var chain audit.Chain
	for range 3 {
		name := audit.FileName(chain.Last() + 1)
		log := chain.Append(nil, audit.Record{At: 1, Opened: &audit.Opened{
			Format: audit.Format, Sandbox: b.id, Device: key.Thumbprint(), Key: key,
		}})
		log = chain.Append(log, audit.Record{At: 1, Lost: &audit.Lost{Leases: 2}})
		if log, _, _, err = chain.AppendHead(log, b.id, time.Unix(0, 0), b.device.Sign); err != nil {
			t.Fatal(err)
		}
		if name == audit.FileName(4) {
			log = bytes.Replace(log, []byte(`"leases":2`), []byte(`"leases":3`), 1)
		}
		writeFile(t, filepath.Join(dir, name), log, 0o600)
	}
	report, err := fleet.VerifyAudit(t.Context(), fleet.AuditConfig{Files: []string{dir}})
	if err == nil || report.Line != 2 || filepath.Base(report.File) != audit.FileName(4) || !strings.Contains(err.Error(), "record 5 ") {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := fleet.VerifyAudit(t.Context(), fleet.AuditConfig{Files: []string{t.TempDir()}}); err == nil {
		t.Error("an empty directory is a log")
	}
}
