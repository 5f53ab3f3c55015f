package panelapi

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// probeAge is how long it is believed whether claude is there: a panel may ask a
	// hundred times a second.
	probeAge = 2 * time.Second
	// maxProbes bounds the sessions of which that is remembered.
	maxProbes = 1024
)

// An available says whether the coding agent is there, as seed 000's agent does.
type available struct {
	Available  bool    `json:"available"`
	Path       *string `json:"path"`
	InstallURL string  `json:"install_url,omitempty"`
	CheckedAt  string  `json:"checked_at,omitempty"`
}

// installURL says how claude is installed.
const installURL = "https://docs.anthropic.com/en/docs/claude-code"

// A where is a session of a sandbox.
type where struct {
	sandbox protocol.SandboxID
	session protocol.SessionID
}

// A probe is what was last heard of a session.
type probe struct {
	mu sync.Mutex
	// Guarded by mu.
	at   time.Time
	said available
}

// probes remember what sandboxes have said. The zero value is ready.
type probes struct {
	mu sync.Mutex
	of map[where]*probe // guarded by mu
}

// at returns the probe of a session. At the bound any other one gives way.
func (p *probes) at(at where) *probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[where]*probe{}
	}
	one := p.of[at]
	if one == nil {
		if len(p.of) >= maxProbes {
			for other := range p.of {
				delete(p.of, other)
				break
			}
		}
		one = &probe{}
		p.of[at] = one
	}
	return one
}

// get returns what was heard lately, or else asks. asked: it did. Several that want
// it at once share the answer.
func (p *probe) get(ask func() (available, error)) (said available, asked bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < probeAge {
		return p.said, false, nil
	}
	said, err = ask()
	if err == nil {
		p.said, p.at = said, time.Now()
	}
	return said, true, err
}
