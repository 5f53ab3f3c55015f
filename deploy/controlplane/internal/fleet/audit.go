package fleet

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/jws"
)

// auditHashBytes is the length of an audit log's hashes.
const auditHashBytes = 32

// postAuditHead keeps the newest head of a sandbox's audit log, so that a log
// that was cut or written again can be told from the one that was. KindConflict
// says that the log forked or went back.
func (f *Fleet) postAuditHead(w *web.Writer, r *http.Request) error {
	var req protocol.AuditHeadRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	hash, err := hex.DecodeString(req.Head.Hash)
	if err != nil || len(hash) != auditHashBytes || hex.EncodeToString(hash) != req.Head.Hash || req.Head.Sequence == 0 {
		return protocol.Errorf(protocol.KindInvalid, "head: want a sequence from 1 and a hash of %d bytes in lower-case hexadecimal digits", auditHashBytes)
	}
	sandbox, key, err := f.Devices.Certified(r.Context(), req.Certificate)
	if err != nil {
		return err
	}
	if req.Head.SandboxID != sandbox {
		return protocol.Errorf(protocol.KindForbidden, "the head is another sandbox's")
	}
	if !jws.VerifyDevice(key.Public, protocol.AuditTranscript(sandbox, req.Head.Sequence, req.Head.Hash), req.Signature) {
		return protocol.Errorf(protocol.KindUnauthenticated, "the head is not signed by the certified key")
	}
	err = f.Store.PutAuditHead(r.Context(), req.Head, req.Signature)
	if err != nil && protocol.KindOf(err) == protocol.KindConflict {
		f.Logger.Error("an audit log does not go on where it was", "sandbox", sandbox, "sequence", req.Head.Sequence)
	}
	if err != nil {
		return err
	}
	return w.None()
}

// An AuditConfig says which audit log to verify, and against what.
type AuditConfig struct {
	Files []string // in order; a directory stands for the log files in it

	// What the control plane keeps of a sandbox. An empty Sandbox: nothing.
	statedir.Location
	Sandbox protocol.SandboxID

	Head      string // file with a protocol.AuditHead; empty: none
	DeviceKey string // file with a public JWK; empty: none

	// Settle is how long an agent that is writing at this moment gets to write
	// the head that its last records lack; default 1.5 s, negative: none. It has
	// one within a second.
	Settle time.Duration

	Wait func(context.Context, time.Duration) error // waits for Settle; nil: as long as it says
}

// Bounds of the wait for a log that is being written.
const (
	AuditSettle   = 1500 * time.Millisecond // unless a configuration says otherwise
	auditAttempts = 3
	auditFresh    = 5 * time.Second // when a file was written last that may be
)

// An AuditReport is what was found.
type AuditReport struct {
	audit.Report
	File string // the last one that was read
	Line int    // of the first record at fault, from 1; 0: none is
}

// VerifyAudit verifies an audit log. An error with an [*audit.Fault] in its
// chain says which record is the first at fault; the report is valid then too.
//
// The last records of a log that is being written have no head yet, which looks
// as if the next one had been cut off. Such a log is read again, and when it goes
// on being written and its heads do, too, a note says how many records are not
// vouched for yet.
func VerifyAudit(ctx context.Context, cfg AuditConfig) (AuditReport, error) {
	expect, err := cfg.expect(ctx)
	if err != nil {
		return AuditReport{}, err
	}
	var head uint64
	for attempt := 1; ; attempt++ {
		report, err := verifyAudit(expect, cfg.Files)
		fault, _ := errors.AsType[*audit.Fault](err)
		if fault == nil || fault.Nature != audit.CutOff || report.Head.Sequence == report.Last || cfg.Settle < 0 || !fresh(report.File) {
			return report, err
		}
		if attempt > 1 && report.Head.Sequence > head { // whoever cuts it off can't sign another
			report.Notes = append(report.Notes, fmt.Sprintf("it is being written: records %d to %d have no signed head yet", report.Head.Sequence+1, report.Last))
			report.Line = 0
			return report, nil
		}
		if attempt == auditAttempts {
			return report, err
		}
		head = report.Head.Sequence
		if err := cfg.settle(ctx); err != nil {
			return report, err
		}
	}
}

// settle waits until an agent has written what it is writing.
func (cfg *AuditConfig) settle(ctx context.Context) error {
	long := cmp.Or(cfg.Settle, AuditSettle)
	if cfg.Wait != nil {
		return cfg.Wait(ctx, long)
	}
	return pause.For(ctx, long)
}

// fresh reports whether a file may be written at this moment.
func fresh(file string) bool {
	info, err := os.Stat(file)
	return err == nil && time.Since(info.ModTime()) < auditFresh
}

func verifyAudit(expect audit.Expect, names []string) (AuditReport, error) {
	var report AuditReport
	files, err := auditFiles(names)
	if err != nil {
		return report, err
	}
	expect.First, _ = audit.FileSequence(filepath.Base(files[0]))
	v := audit.NewVerifier(expect)
	first := uint64(0) // number of the file's first record
	for _, file := range files {
		before, _ := v.Report()
		report.File = file
		err := verifyFile(v, file)
		report.Report, _ = v.Report()
		if first = before.Last + 1; before.Last == 0 {
			first = max(report.First, 1)
		}
		if err != nil {
			return report.at(first, err)
		}
	}
	report.Report, err = v.Report()
	return report.at(first, err)
}

// at adds to err where in the file its record is.
func (r AuditReport) at(first uint64, err error) (AuditReport, error) {
	fault, ok := errors.AsType[*audit.Fault](err)
	if !ok {
		return r, err
	}
	sequence := fault.Sequence
	if fault.Nature == audit.Reordered && sequence <= r.Last {
		sequence = r.Last + 1 // it stands behind the last good one
	}
	r.Line = 1
	if sequence >= first {
		r.Line = int(sequence-first) + 1
	}
	return r, fmt.Errorf("%s:%d: %w", r.File, r.Line, err)
}

func verifyFile(v *audit.Verifier, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return v.File(f)
}

// auditFiles lists the files of a log in order.
func auditFiles(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, err
		case !info.IsDir():
			files = append(files, name)
			continue
		}
		inside, err := filepath.Glob(filepath.Join(name, "audit-*.jsonl"))
		if err != nil {
			return nil, err
		}
		slices.Sort(inside)
		files = append(files, inside...)
	}
	if len(files) == 0 {
		return nil, errors.New("no audit log file there")
	}
	return files, nil
}

// expect gathers what the log must agree with.
func (cfg *AuditConfig) expect(ctx context.Context) (audit.Expect, error) {
	expect := audit.Expect{Sandbox: cfg.Sandbox}
	if cfg.DeviceKey != "" {
		jwk, err := private.ReadPublic(cfg.DeviceKey, maxJWKBytes)
		if err != nil {
			return expect, err
		}
		if expect.Device, err = auditDevice(jwk); err != nil {
			return expect, fmt.Errorf("%s: %w", cfg.DeviceKey, err)
		}
	}
	if cfg.Head != "" {
		data, err := private.ReadPublic(cfg.Head, maxJWKBytes)
		if err != nil {
			return expect, err
		}
		var head protocol.AuditHead
		if err := protocol.UnmarshalStrict(data, &head); err != nil {
			return expect, fmt.Errorf("%s: %w", cfg.Head, err)
		}
		expect.Heads = append(expect.Heads, head)
	}
	if cfg.Sandbox == "" || cfg.StateDir == "" && cfg.Database == "" {
		return expect, nil
	}
	sandbox, err := AuditedSandbox(ctx, cfg.Location, cfg.Sandbox)
	if err != nil {
		return expect, err
	}
	if expect.Device == "" && len(sandbox.DeviceJWK) > 0 {
		if expect.Device, err = auditDevice(sandbox.DeviceJWK); err != nil {
			return expect, err
		}
	}
	if sandbox.Head.Sequence > 0 {
		expect.Heads = append(expect.Heads, sandbox.Head.AuditHead)
	}
	return expect, nil
}

func auditDevice(jwk []byte) (string, error) {
	key, err := audit.ParseKey(jwk)
	if err != nil {
		return "", err
	}
	return key.Thumbprint(), nil
}

// AuditedSandbox returns what the control plane keeps of a sandbox: its device
// key and the newest head of that key's audit log.
func AuditedSandbox(ctx context.Context, kept statedir.Location, id protocol.SandboxID) (store.Sandbox, error) {
	st, err := kept.OpenStore(ctx, nil)
	if err != nil {
		return store.Sandbox{}, err
	}
	sandbox, err := st.Fleet.Sandbox(ctx, id)
	return sandbox, errors.Join(err, st.Close())
}
