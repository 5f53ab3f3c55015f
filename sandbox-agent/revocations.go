package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	revocationsPath = "/.well-known/revocations"
	revocationsFile = "revocations.json"
)

// revocations are what is void before its time, in memory and on disk.
type revocations struct {
	// Static after construction.
	set  *jws.RevocationSet
	path string
	log  *slog.Logger

	// Guarded by mu, which is held while the file is written.
	mu    sync.Mutex
	list  *jws.Revocations // the newest; nil: none was seen
	dirty bool             // the file is older than the set
}

// stored is the file's content. It was verified before it was written, and the
// state directory is the agent's own.
type stored struct {
	List   *jws.Revocations   `json:"list,omitempty"`
	Grants []protocol.GrantID `json:"grants"` // that commands have revoked
}

// openRevocations reads what was known when the agent last ran.
func openRevocations(stateDir string, log *slog.Logger) (*revocations, error) {
	r := &revocations{set: jws.NewRevocationSet(), path: filepath.Join(stateDir, revocationsFile), log: log}
	data, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("revocations: %w", err)
	}
	var known stored
	if err := protocol.UnmarshalStrict(data, &known); err != nil {
		// Without it what was revoked is void again once the control plane is
		// reached; a sandbox that doesn't start at all is worse.
		log.Error("the stored revocations are of no use", "file", r.path, "err", err)
		return r, nil
	}
	if known.List != nil {
		r.list = known.List
		r.set.Apply(known.List)
	}
	if len(known.Grants) > 0 {
		r.set.Add(known.Grants...)
	}
	return r, nil
}

// apply takes a verified list, unless a newer one was seen, and stores it.
func (r *revocations) apply(list *jws.Revocations) error {
	if r.set.Apply(list) { // first of all: what is void is void now
		r.log.Info("revocations", "number", list.Number, "grants", len(list.Grants),
			"subjects", len(list.Subjects), "certificates", len(list.Certificates))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil || list.Number > r.list.Number {
		r.list, r.dirty = list, true
	}
	return r.store()
}

// Revoke makes grants void and stores that. An error means that it may be
// forgotten when the agent ends.
func (r *revocations) Revoke(grants []protocol.GrantID) error {
	r.set.Add(grants...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = true
	return r.store()
}

// store writes the file if it is out of date. It is called with mu held.
func (r *revocations) store() error {
	if !r.dirty {
		return nil
	}
	data, err := json.Marshal(stored{r.list, r.set.Extra()})
	if err == nil {
		err = program.ReplaceFile(r.path, data, 0o600)
	}
	if err != nil {
		return protocol.Fault(protocol.KindInternal, fmt.Errorf("revocations: %w", err))
	}
	r.dirty = false
	return nil
}

// fetchRevocations asks the control plane what is void.
func (a *Agent) fetchRevocations(ctx context.Context) error {
	token, err := a.controlPlane.get(ctx, revocationsPath)
	if err != nil {
		return err
	}
	list, err := a.keys.Revocations(ctx, string(bytes.TrimSpace(token)))
	if err != nil {
		return err
	}
	return a.revocations.apply(list)
}
