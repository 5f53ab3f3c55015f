// Package environment keeps the variables and secrets that users give to
// sessions and terminals, in memory alone, and says what a terminal gets of
// them.
//
// A secret that the broker protects is never in a terminal's environment:
// there stands a placeholder, beside the URL by which the broker is used.
package environment

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// Bounds of what one session or one terminal may have.
const (
	// MaxVariables is how many variables one scope may have.
	MaxVariables = 10_000
	// MaxValueBytes bounds "NAME=value": execve takes no longer string.
	MaxValueBytes = 128<<10 - 1
	// MaxScopeBytes bounds all variables of one scope: execve takes 2 MiB of
	// arguments and environment, and a terminal has two scopes.
	MaxScopeBytes = 512 << 10
	// MaxScopes bounds the sessions and terminals that have variables.
	MaxScopes = 4 * protocol.MaxPTYs
)

// A Broker keeps protected secrets and sends them for terminals.
// *broker.Server is one. Its methods are called under the Store's lock, and
// must not call the Store.
type Broker interface {
	// Environ returns the variables by which a terminal uses protected secrets.
	Environ(session protocol.SessionID, pty protocol.PTYID, uid int, names []string) (map[string]string, error)
	PutSecret(session protocol.SessionID, pty protocol.PTYID, name, value string)
	RemoveSecret(session protocol.SessionID, pty protocol.PTYID, name string)
	CheckDomain(d protocol.ApprovedDomain) error
	ApproveDomain(session protocol.SessionID, d protocol.ApprovedDomain) error
	Domains(session protocol.SessionID, secret string) []string
	EndTerminal(session protocol.SessionID, pty protocol.PTYID)
	EndSession(session protocol.SessionID)
}

// Terminals are the sandbox's. *terminal.Host has them. SetSecrets and ApplyEnv
// are called one at a time, and without a lock that other methods than Apply and
// SessionEnded need.
type Terminals interface {
	// UID returns the user of a terminal; false when there is none such.
	UID(session protocol.SessionID, pty protocol.PTYID) (int, bool)
	// SetSecrets has all values masked in what terminals show; set finds them.
	SetSecrets(set *redact.Set, secrets []string)
	// ApplyEnv hands a terminal that runs a script for its shell. An error of
	// KindNotFound or KindEnded says that the terminal is over.
	ApplyEnv(session protocol.SessionID, pty protocol.PTYID, script []byte) error
}

// Masks hide secrets in everything but terminals. *mask.Secrets does.
type Masks interface {
	// Change has these secrets hidden, and no others. Where it fails nothing
	// changes.
	Change(secrets []string) (*redact.Set, error)
}

// Options say how a Store works.
type Options struct {
	Broker    Broker // nil: no secret can be protected
	Terminals Terminals
	Masks     Masks
	Seal      Seal // opens what commands bring
}

// A scope is a session, or one terminal of it where pty isn't empty.
type scope struct {
	session protocol.SessionID
	pty     protocol.PTYID
}

// A variable is what a user has set.
type variable struct {
	value     string
	secret    bool
	protected bool
}

// A terminal is one that runs, or is about to.
type terminal struct {
	uid     int
	applied map[string]*string // by scripts since it began; nil: unset
}

// Store is the memory of all sessions of a sandbox. It is safe for concurrent
// use.
type Store struct {
	// Static after construction.
	opts Options

	// changes orders Apply and SessionEnded; it is taken before mu.
	changes sync.Mutex

	mu sync.Mutex
	// Guarded by mu.
	scopes    map[scope]map[string]variable
	terminals map[scope]*terminal
	rounds    map[protocol.SessionID]uint64          // counts the changes of a session
	seen      map[protocol.SessionID]map[string]bool // all values that were ever secret: they may still be printed
}

var _ interface {
	feature.Router
	feature.Operator
	feature.Starter
	feature.Ender
	feature.SessionEnder
} = (*Store)(nil)

// New returns an empty Store.
func New(opts Options) *Store {
	return &Store{
		opts: opts, scopes: make(map[scope]map[string]variable), terminals: make(map[scope]*terminal),
		rounds: make(map[protocol.SessionID]uint64), seen: make(map[protocol.SessionID]map[string]bool),
	}
}

// Apply changes the variables of a session or, where pty isn't empty, of one
// terminal alone, for which its own go before the session's. New terminals get
// the change; with applyNow those that run do as well, before their shell's
// next prompt. What the broker protects counts at once for all.
//
// It fails with KindInvalid, KindTooLarge or KindTooMany, naming a variable
// and never a value, and changes nothing then; and with what ApplyEnv said, when the change is made and some terminal didn't take it.
func (s *Store) Apply(session protocol.SessionID, pty protocol.PTYID, values protocol.EnvValues, unset []string, applyNow bool) error {
	if err := s.check(values, unset); err != nil {
		return err
	}
	at := scope{session, pty}
	s.changes.Lock()
	defer s.changes.Unlock()
	after, err := s.changed(at, values, unset)
	if err != nil {
		return err
	}
	if err := s.remember(session, values.Secrets); err != nil {
		return err
	}
	scripts, err := s.commit(at, after, values, unset, applyNow)
	if err != nil {
		return err
	}
	var errs []error
	for in, script := range scripts {
		if err := s.opts.Terminals.ApplyEnv(in.session, in.pty, script); err != nil && !over(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// over reports whether a terminal is gone, as ApplyEnv says it.
func over(err error) bool {
	kind := protocol.KindOf(err)
	return kind == protocol.KindNotFound || kind == protocol.KindEnded
}

// changed returns what the variables of a scope are to be.
func (s *Store) changed(at scope, values protocol.EnvValues, unset []string) (map[string]variable, error) {
	s.mu.Lock()
	after := maps.Clone(s.scopes[at])
	scopes := len(s.scopes)
	s.mu.Unlock()
	if after == nil && scopes >= MaxScopes {
		return nil, protocol.Errorf(protocol.KindTooMany, "%d sessions and terminals have variables, no more are allowed", scopes)
	}
	if after == nil {
		after = make(map[string]variable)
	}
	for _, name := range unset {
		delete(after, name)
	}
	for name, value := range values.Set {
		after[name] = variable{value: value}
	}
	for name, secret := range values.Secrets {
		after[name] = variable{value: secret.Value, secret: true, protected: secret.BrokerProtected}
	}
	return after, checkScope(after)
}

// commit makes after the variables of a scope, and returns what the terminals
// that run are to be told. A terminal that starts meanwhile has either the
// variables of before and a script, or those of after.
func (s *Store) commit(at scope, after map[string]variable, values protocol.EnvValues, unset []string, applyNow bool) (map[scope][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var before map[scope]map[string]string
	if applyNow {
		var err error
		if before, err = s.environs(at); err != nil {
			return nil, err
		}
	}
	s.replace(at, after)
	s.rounds[at.session]++
	for _, d := range values.ApprovedDomains {
		if err := s.opts.Broker.ApproveDomain(at.session, d); err != nil {
			return nil, err
		}
	}
	names := touched(values, unset)
	scripts := make(map[scope][]byte)
	for in, old := range before {
		now, err := s.environ(in, s.terminals[in].uid)
		if err != nil {
			return nil, err
		}
		if script := s.terminals[in].change(old, now, names); len(script) > 0 {
			scripts[in] = script
		}
	}
	return scripts, nil
}

// check refuses what can't be carried out, whoever has signed it.
func (s *Store) check(values protocol.EnvValues, unset []string) error {
	asked := op.EnvApply{Set: values.Set, Secrets: values.Secrets, ApprovedDomains: values.ApprovedDomains, Unset: unset}
	if err := asked.Check(); err != nil {
		return err
	}
	if s.opts.Broker == nil && len(values.ApprovedDomains) > 0 {
		return protocol.Errorf(protocol.KindUnsupported, "this sandbox has no broker")
	}
	for _, d := range values.ApprovedDomains {
		if err := s.opts.Broker.CheckDomain(d); err != nil {
			return err
		}
	}
	for name, secret := range values.Secrets {
		if !secret.BrokerProtected {
			continue
		}
		if s.opts.Broker == nil {
			return protocol.Errorf(protocol.KindUnsupported, "%s: this sandbox has no broker", name)
		}
		if strings.ContainsFunc(strings.TrimSpace(secret.Value), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return protocol.Errorf(protocol.KindInvalid, "%s: a protected secret is sent in a header and can't hold control characters", name)
		}
	}
	return nil
}

// checkScope refuses more than a program can be started with.
func checkScope(vars map[string]variable) error {
	if len(vars) > MaxVariables {
		return protocol.Errorf(protocol.KindTooMany, "there would be %d variables, %d are allowed", len(vars), MaxVariables)
	}
	total := 0
	for name, v := range vars {
		size := len(name) + len("=") + len(v.value)
		if size > MaxValueBytes {
			return protocol.Errorf(protocol.KindTooLarge, "%s is too long: name and value have %d bytes at most", name, MaxValueBytes)
		}
		total += size
	}
	if total > MaxScopeBytes {
		return protocol.Errorf(protocol.KindTooLarge, "the variables would have %d bytes, %d are allowed", total, MaxScopeBytes)
	}
	return nil
}

// remember adds new secrets to what output must not show, until the session
// ends. s.changes is held.
func (s *Store) remember(session protocol.SessionID, secrets map[string]protocol.EnvSecret) error {
	s.mu.Lock()
	before := s.seen[session]
	s.mu.Unlock()
	seen := make(map[string]bool, len(before)+len(secrets))
	maps.Copy(seen, before)
	for _, secret := range secrets {
		for _, form := range forms(secret.Value) {
			seen[form] = true
		}
	}
	if len(seen) == len(before) {
		return nil
	}
	if err := s.publish(session, seen); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[session] = seen
	return nil
}

// publish has masked what is to be when those of session are seen, before any
// terminal gets it. Where it fails nothing changes.
// s.changes is held.
func (s *Store) publish(session protocol.SessionID, seen map[string]bool) error {
	all := make(map[string]bool)
	s.mu.Lock()
	for in, others := range s.seen {
		if in != session {
			maps.Copy(all, others)
		}
	}
	s.mu.Unlock()
	maps.Copy(all, seen)
	if len(all) > redact.MaxSecrets {
		return protocol.Errorf(protocol.KindTooMany,
			"the sandbox would have %d secrets to mask, %d are allowed; those that were removed count until their session ends",
			len(all), redact.MaxSecrets)
	}
	secrets := slices.Sorted(maps.Keys(all))
	set, err := s.opts.Masks.Change(secrets)
	if err != nil {
		return err
	}
	s.opts.Terminals.SetSecrets(set, secrets)
	return nil
}

// Changes counts the changes of a session's variables and secrets, those of its
// terminals too.
func (s *Store) Changes(session protocol.SessionID) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds[session]
}

// Secrets returns all values that output must not show, in order.
func (s *Store) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]bool)
	for _, seen := range s.seen {
		maps.Copy(all, seen)
	}
	return slices.Sorted(maps.Keys(all))
}

// minLineBytes is the length from which a line of a secret is one by itself.
const minLineBytes = 16

// forms returns what a secret may be printed as: itself, itself without the
// blanks around it, and each line of it, but for the armour that all keys
// share.
func forms(value string) []string {
	all := []string{value}
	if trimmed := strings.TrimSpace(value); trimmed != value && len(trimmed) >= redact.MinSecretBytes {
		all = append(all, trimmed)
	}
	if !strings.ContainsAny(strings.TrimSpace(value), "\r\n") {
		return all
	}
	for line := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '\r' || r == '\n' }) {
		line = strings.TrimSpace(line)
		if len(line) >= minLineBytes && !strings.HasPrefix(line, "-----") {
			all = append(all, line)
		}
	}
	return all
}

// replace makes after the variables of a scope, for the broker too. s.mu is
// held.
func (s *Store) replace(at scope, after map[string]variable) {
	if s.opts.Broker != nil {
		for name, old := range s.scopes[at] {
			if old.protected && !after[name].protected {
				s.opts.Broker.RemoveSecret(at.session, at.pty, name)
			}
		}
		for name, v := range after {
			if v.protected && s.scopes[at][name] != v {
				s.opts.Broker.PutSecret(at.session, at.pty, name, v.value)
			}
		}
	}
	if len(after) == 0 {
		delete(s.scopes, at)
		return
	}
	s.scopes[at] = after
}

// Names returns the variables of a session and of its terminals, in order of
// their names.
func (s *Store) Names(session protocol.SessionID) op.EnvList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := op.EnvList{Variables: []op.EnvVariable{}}
	for at, vars := range s.scopes {
		if at.session != session {
			continue
		}
		for name, v := range vars {
			shown := op.EnvVariable{Name: name, PTYID: at.pty, Secret: v.secret, BrokerProtected: v.protected}
			if v.protected {
				shown.Domains = s.opts.Broker.Domains(session, name)
			}
			list.Variables = append(list.Variables, shown)
		}
	}
	slices.SortFunc(list.Variables, func(a, b op.EnvVariable) int {
		if order := strings.Compare(a.Name, b.Name); order != 0 {
			return order
		}
		return strings.Compare(string(a.PTYID), string(b.PTYID))
	})
	return list
}

// TerminalEnded implements [feature.Ender]: it forgets a terminal and what was set for it alone, also one that asked
// for its environment and couldn't start. Its secrets are masked until the
// session ends: others may print them.
func (s *Store) TerminalEnded(t feature.Terminal) {
	session, pty := t.Session, t.PTY
	s.mu.Lock()
	defer s.mu.Unlock()
	at := scope{session, pty}
	delete(s.terminals, at)
	delete(s.scopes, at)
	if s.opts.Broker != nil {
		s.opts.Broker.EndTerminal(session, pty)
	}
}

// SessionEnded implements [feature.SessionEnder]: it drops all of a session, its secrets from what is masked as well: its
// terminals must have ended.
func (s *Store) SessionEnded(session protocol.SessionID) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	maps.DeleteFunc(s.terminals, func(at scope, _ *terminal) bool { return at.session == session })
	maps.DeleteFunc(s.scopes, func(at scope, _ map[string]variable) bool { return at.session == session })
	if s.opts.Broker != nil {
		s.opts.Broker.EndSession(session)
	}
	_, masked := s.seen[session]
	delete(s.seen, session)
	delete(s.rounds, session)
	s.mu.Unlock()
	if !masked {
		return nil
	}
	return s.publish(session, nil)
}

// A Seal opens the values of env.apply.
type Seal interface {
	Open(box []byte) (protocol.EnvValues, error)
}
