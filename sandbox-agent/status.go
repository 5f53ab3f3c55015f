package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/audit"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
	"github.com/fairlead/fairlead/sandbox-agent/internal/uplink"
	"github.com/fairlead/fairlead/tunnel"
)

// statusInterval is how often the agent looks at itself.
const statusInterval = time.Second

// A Status is the content of the status file.
type Status struct {
	// Ready: relays send commands here, and they are executed.
	Ready    bool                 `json:"ready"`
	Problems []protocol.Problem   `json:"problems"`
	Relays   []uplink.RelayStatus `json:"relays"` // that the agent is connected to
	// Egress says how far new terminals are kept to the egress proxy, and
	// EgressWhy why not further.
	Egress    protocol.EgressState `json:"egress"`
	EgressWhy string               `json:"egress_why,omitempty"`
	// CertificateExpiresAt is absent where it isn't known.
	CertificateExpiresAt time.Time `json:"certificate_expires_at,omitzero"`
}

// MarshalJSON writes empty lists as [], not null.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	if s.Problems == nil {
		s.Problems = []protocol.Problem{}
	}
	if s.Relays == nil {
		s.Relays = []uplink.RelayStatus{}
	}
	return json.Marshal(plain(s))
}

// writeStatus replaces the status file, if there is to be one. Where the disk is
// full the old file goes first: no file is better than one that is wrong.
func (c *Config) writeStatus(s Status) error {
	if c.StatusFile == "" {
		return nil
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	err = program.ReplaceFile(c.StatusFile, data, 0o600)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		if gone := os.Remove(c.StatusFile); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			return errors.Join(err, gone)
		}
		err = program.ReplaceFile(c.StatusFile, data, 0o600)
	}
	return err
}

// say writes the status file, and logs where that fails.
func (c *Config) say(s Status) {
	if err := c.writeStatus(s); err != nil {
		c.Logger.Warn("status file not written", "err", err)
	}
}

// A reporter tells relays and the status file how the agent is.
type reporter struct {
	// Static after construction.
	cfg    *Config
	log    *slog.Logger
	news   <-chan struct{} // something may have changed
	health health

	// Guarded by mu.
	mu       sync.Mutex
	problems []protocol.Problem
}

// greet tells a relay that is new how the agent is.
func (r *reporter) greet(session *tunnel.Session) {
	r.mu.Lock()
	defer r.mu.Unlock() // or an older status could follow a newer one
	r.send(session)
}

// send tells one relay. It is called with mu held.
func (r *reporter) send(session *tunnel.Session) {
	if err := session.SendStatus(protocol.Status{Problems: r.problems}); err != nil {
		r.log.Debug("status not sent", "relay", session.Welcome().RelayID, "err", err)
	}
}

// Run implements [feature.Runner]: it reports what changes until ctx ends.
func (r *reporter) Run(ctx context.Context) {
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	var last *Status // nil: the file doesn't say it
	failed := false
	for {
		changed := r.health.tunnels.Changed()
		next := r.health.status(time.Now())
		r.tell(next.Problems, r.health.tunnels.Sessions())
		if last == nil || !reflect.DeepEqual(*last, next) {
			err := r.cfg.writeStatus(next)
			if last = &next; err != nil {
				last = nil // again soon
			}
			if err != nil && !failed {
				r.log.Warn("status file not written", "err", err)
			}
			failed = err != nil
		}
		select {
		case <-changed:
		case <-r.news:
		case <-ticker.C:
		case <-ctx.Done():
			next.Ready, next.Relays = false, nil
			r.cfg.say(next)
			return
		}
	}
}

// tell reports problems to relays if they have changed.
func (r *reporter) tell(problems []protocol.Problem, relays []*tunnel.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(problems, r.problems) {
		return
	}
	for _, p := range problems {
		if !slices.Contains(r.problems, p) {
			r.log.Error("problem", "name", p.Name, "message", p.Message)
		}
	}
	r.problems = problems
	for _, session := range relays {
		r.send(session)
	}
}

// A health is everything that can be wrong with an agent.
type health struct {
	tunnels   *uplink.Tunnels
	authority *authority.Authority
	ledger    *ledger.Ledger
	audit     *audit.Log
	egress    *egress.Gate
}

// status implements [stater].
func (h health) status(now time.Time) Status {
	s := Status{Relays: h.tunnels.Status(), CertificateExpiresAt: h.authority.Credentials.Expires().UTC()}
	s.Egress, s.EgressWhy = h.egress.Status()
	s.Ready = len(s.Relays) > 0
	stops := func(name, message string) { // commands are refused
		s.Problems = append(s.Problems, protocol.Problem{Name: name, Message: message})
		s.Ready = false
	}
	if message := h.authority.Trust.Problem(now); message != "" {
		stops(protocol.ProblemKeys, message)
	}
	if err := h.ledger.Err(); err != nil {
		stops(protocol.ProblemLedger, err.Error()+": commands are refused")
	}
	if err := h.audit.Err(); err != nil {
		stops(protocol.ProblemAudit, err.Error())
	}
	if message := h.authority.Heads.Problem(); message != "" { // commands go on
		s.Problems = append(s.Problems, protocol.Problem{Name: protocol.ProblemAudit, Message: message})
	}
	if message := h.authority.Credentials.Problem(now); message != "" {
		s.Problems = append(s.Problems, protocol.Problem{Name: protocol.ProblemCertificate, Message: message})
	}
	return s
}
