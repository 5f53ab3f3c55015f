package chat

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

const (
	// rulesFile has the rules of all sessions, beside the conversations.
	rulesFile = "rules.json"
	// maxRules bounds the rules of a session.
	maxRules = 256
)

// rules are the tools that sessions have allowed for good. They are safe for
// concurrent use.
type rules struct {
	path string // static after construction

	mu        sync.Mutex
	bySession map[protocol.SessionID][]string // guarded by mu
}

// openRules reads the rules of all sessions. A file that can't be read ends the
// agent at its start rather than be overwritten.
func openRules(path string) (*rules, error) {
	r := &rules{path: path, bySession: map[protocol.SessionID][]string{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.bySession)
	}
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", path, err)
	}
	return r, nil
}

// of returns the rules of a session.
func (r *rules) of(session protocol.SessionID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.bySession[session])
}

// add gives a session another rule, for good. It fails with KindTooMany.
func (r *rules) add(session protocol.SessionID, rule string) error {
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

// forget drops the rules of a session.
func (r *rules) forget(session protocol.SessionID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, any := r.bySession[session]; !any {
		return nil
	}
	delete(r.bySession, session)
	return r.store()
}

// store writes the file. The caller holds mu.
func (r *rules) store() error {
	text, err := json.Marshal(r.bySession)
	if err == nil {
		err = program.ReplaceFile(r.path, text, 0o600)
	}
	if err != nil {
		return diskError(err)
	}
	return nil
}
