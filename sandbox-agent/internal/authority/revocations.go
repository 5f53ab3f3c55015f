package authority

import (
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

// Revocations are what is void before its time, in memory and on disk.
type Revocations struct {
	// Static after construction.
	Set  *jws.RevocationSet
	path string
	log  *slog.Logger

	// Guarded by mu, which is held while the file is written.
	mu    sync.Mutex
	dirty bool // the file is older than the set
}

// stored is the file's content. It was verified before it was written, and the
// state directory is the agent's own.
type stored struct {
	List   *jws.Revocations   `json:"list,omitempty"` // all that is known
	Grants []protocol.GrantID `json:"grants"`         // of earlier builds: that commands have revoked
}

// openRevocations reads what was known when the agent last ran.
func openRevocations(stateDir string, log *slog.Logger) (*Revocations, error) {
	r := &Revocations{Set: jws.NewRevocationSet(), path: filepath.Join(stateDir, revocationsFile), log: log}
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
		r.Set.Apply(known.List)
	}
	r.Set.Add(known.Grants...)
	return r, nil
}

// apply adds what verified lists say to what is known, and stores it.
func (r *Revocations) apply(lists ...*jws.Revocations) error {
	news := false
	for _, list := range lists {
		if r.Set.Apply(list) { // first of all: what is void is void now
			news = true
			r.log.Info("revocations", "number", list.Number, "grants", len(list.Grants),
				"subjects", len(list.Subjects), "certificates", len(list.Certificates))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = r.dirty || news
	return r.store()
}

// Revoke makes grants void and stores that. An error means that it may be
// forgotten when the agent ends.
func (r *Revocations) Revoke(grants []protocol.GrantID) error {
	r.Set.Add(grants...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = true
	return r.store()
}

// store writes the file if it is out of date. It is called with mu held.
func (r *Revocations) store() error {
	if !r.dirty {
		return nil
	}
	data, err := json.Marshal(stored{r.Set.Known(), []protocol.GrantID{}})
	if err == nil {
		err = program.ReplaceFile(r.path, data, 0o600)
	}
	if err != nil {
		return protocol.Fault(protocol.KindInternal, fmt.Errorf("revocations: %w", err))
	}
	r.dirty = false
	return nil
}
