package panelapi

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// probeAge is how long it is believed what a sandbox says: a panel may ask a
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

// A working is what the panel reads of its sandbox.
type working struct {
	Tabs    int     `json:"tabs"` // of the sandbox's browser
	Agent   agent   `json:"agent"`
	Session *naming `json:"session"` // null: nobody says
}

// An agent is how the agent of the active tab stands.
type agent struct {
	Status      string `json:"status"`
	RunningFor  *int64 `json:"runningFor"` // milliseconds
	QueueLength int    `json:"queueLength"`
}

// A naming is what the panel calls its session.
type naming struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// installURL says how claude is installed.
const installURL = "https://docs.anthropic.com/en/docs/claude-code"

// A where is a session of a sandbox.
type where struct {
	sandbox protocol.SandboxID
	session protocol.SessionID
}

// A probe is what was last heard of a session.
type probe[T any] struct {
	mu sync.Mutex
	// Guarded by mu.
	at   time.Time
	said T
	err  error
}

// probes remember what sandboxes have said. The zero value is ready.
type probes[T any] struct {
	mu sync.Mutex
	of map[where]*probe[T] // guarded by mu
}

// at returns the probe of a session. At the bound any other one gives way.
func (p *probes[T]) at(at where) *probe[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[where]*probe[T]{}
	}
	one := p.of[at]
	if one == nil {
		if len(p.of) >= maxProbes {
			for other := range p.of {
				delete(p.of, other)
				break
			}
		}
		one = &probe[T]{}
		p.of[at] = one
	}
	return one
}

// get returns what was heard lately, or else asks. asked: it did. Several that want
// it at once share the answer, also that there is none: a sandbox that doesn't answer
// must not hold up one after the other.
func (p *probe[T]) get(ask func() (T, error)) (said T, asked bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < probeAge {
		return p.said, false, p.err
	}
	p.said, p.err = ask()
	p.at = time.Now()
	return p.said, true, p.err
}
