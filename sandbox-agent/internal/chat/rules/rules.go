// Package rules keeps the tools that sessions have allowed their coding agents for
// good, in one file.
package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// maxRules bounds the rules of a session.
const maxRules = 256

// Rules are those of all sessions. They are safe for concurrent use.
type Rules struct {
	path string // static after construction

	mu        sync.Mutex
	bySession map[protocol.SessionID][]string // guarded by mu
}

// Open reads the rules of all sessions. A file that can't be read ends the
// agent at its start rather than be overwritten.
func Open(path string) (*Rules, error) {
	r := &Rules{path: path, bySession: map[protocol.SessionID][]string{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.bySession)
	}
	if err != nil {
		return nil, fmt.Errorf("rules: %s: %w", path, err)
	}
	return r, nil
}

// Of returns the rules of a session.
func (r *Rules) Of(session protocol.SessionID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.bySession[session])
}

// Add gives a session another rule, for good. It fails with KindTooMany, and as the
// disk does.
func (r *Rules) Add(session protocol.SessionID, rule string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.bySession[session]
	switch {
	case slices.Contains(before, rule):
		return nil
	case len(before) >= maxRules:
		return protocol.Errorf(protocol.KindTooMany, "over %d rules about tools", maxRules)
	}
	r.bySession[session] = append(slices.Clip(before), rule)
	if err := r.store(); err != nil {
		r.bySession[session] = before
		return err
	}
	return nil
}

// Forget drops the rules of a session.
func (r *Rules) Forget(session protocol.SessionID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, any := r.bySession[session]; !any {
		return nil
	}
	delete(r.bySession, session)
	return r.store()
}

// store writes the file. The caller holds mu.
func (r *Rules) store() error {
	text, err := json.Marshal(r.bySession)
	if err == nil {
		err = program.ReplaceFile(r.path, text, 0o600)
	}
	return err
}
