package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// rulesVersion is the version of the file of rules.
const rulesVersion = 1

// maxRulesBytes bounds the file: MaxRules of the longest patterns.
const maxRulesBytes = MaxRules * 512

// rulesFile is the file of rules.
type rulesFile struct {
	Version  int                                   `json:"version"`
	Sessions map[protocol.SessionID]rulesOfSession `json:"sessions"`
}

type rulesOfSession struct {
	Egress *bool    `json:"egress,omitempty"` // terminals use the proxy
	Allow  []string `json:"allow,omitempty"`
	Deny   []string `json:"deny,omitempty"`
}

func loadRules(path string) (map[protocol.SessionID]*sessionRules, error) {
	sessions := map[protocol.SessionID]*sessionRules{}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sessions, nil
	case err != nil:
		return nil, fmt.Errorf("egress: %w", err)
	case info.Size() > maxRulesBytes:
		return nil, fmt.Errorf("egress: %s has over %d bytes", path, maxRulesBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	var file rulesFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("egress: %s: %w", path, err)
	}
	if file.Version != rulesVersion {
		return nil, fmt.Errorf("egress: %s has version %d, known is %d", path, file.Version, rulesVersion)
	}
	for session, stored := range file.Sessions {
		s := &sessionRules{on: stored.Egress}
		if s.allow, err = patterns(stored.Allow); err == nil {
			s.deny, err = patterns(stored.Deny)
		}
		if err != nil {
			return nil, fmt.Errorf("egress: %s: session %s: %w", path, session, err)
		}
		sessions[session] = s
	}
	return sessions, nil
}

func patterns(texts []string) ([]hostname.Pattern, error) {
	var all []hostname.Pattern
	for _, text := range texts {
		p, err := hostname.ParsePattern(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// saveRules replaces the file atomically, even in a crash.
func saveRules(path string, sessions map[protocol.SessionID]*sessionRules) error {
	file := rulesFile{Version: rulesVersion, Sessions: make(map[protocol.SessionID]rulesOfSession, len(sessions))}
	for session, s := range sessions {
		file.Sessions[session] = rulesOfSession{Egress: s.on, Allow: texts(s.allow), Deny: texts(s.deny)}
	}
	text, err := json.MarshalIndent(file, "", "\t")
	if err != nil {
		return err
	}
	return program.ReplaceFile(path, append(text, '\n'), 0o600)
}
