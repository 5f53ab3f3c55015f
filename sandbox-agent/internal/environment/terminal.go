package environment

import (
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// Environ returns what a terminal that is about to start gets of its session's
// variables and its own, as "NAME=value" in order. uid is the user that its
// processes run as; the terminal counts as running until [Store.TerminalEnded].
func (s *Store) Environ(session protocol.SessionID, pty protocol.PTYID, uid int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := scope{session, pty}
	env, err := s.environ(at, uid)
	if err != nil {
		return nil, err
	}
	s.terminals[at] = &terminal{uid: uid, applied: make(map[string]*string)}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list, nil
}

// TerminalStarts implements [feature.Starter].
func (s *Store) TerminalStarts(start *feature.Start) error {
	env, err := s.Environ(start.Session, start.PTY, start.UID)
	start.Env = append(start.Env, env...)
	return err
}

// environ computes the variables of a terminal. Those of the broker give way
// to what a user has set by name. s.mu is held.
func (s *Store) environ(at scope, uid int) (map[string]string, error) {
	vars := maps.Clone(s.scopes[scope{session: at.session}])
	if vars == nil {
		vars = make(map[string]variable)
	}
	maps.Copy(vars, s.scopes[at])
	env := make(map[string]string, len(vars))
	var protected []string
	for name, v := range vars {
		if v.protected {
			protected = append(protected, name)
		} else {
			env[name] = v.value
		}
	}
	if len(protected) == 0 {
		return env, nil
	}
	slices.Sort(protected)
	brokered, err := s.opts.Broker.Environ(at.session, at.pty, uid, protected)
	if err != nil {
		return nil, err
	}
	for name, value := range brokered {
		if _, set := env[name]; !set {
			env[name] = value
		}
	}
	return env, nil
}

// environs returns the variables of all running terminals of a scope. s.mu is
// held.
func (s *Store) environs(at scope) (map[scope]map[string]string, error) {
	all := make(map[scope]map[string]string)
	for in, term := range s.terminals {
		if in.session != at.session || at.pty != "" && in.pty != at.pty {
			continue
		}
		env, err := s.environ(in, term.uid)
		if err != nil {
			return nil, err
		}
		all[in] = env
	}
	return all, nil
}

// touched returns the names that a command speaks of: a shell gets them anew
// even where the value is the one that it began with.
func touched(values protocol.EnvValues, unset []string) map[string]bool {
	names := make(map[string]bool)
	for name := range values.Set {
		names[name] = true
	}
	for name := range values.Secrets {
		names[name] = true
	}
	for _, name := range unset {
		names[name] = true
	}
	return names
}

// change adds what differs between two environments to what t's shell is to
// run, and returns the whole of that: a shell that was busy misses nothing.
// It is empty when nothing differs.
func (t *terminal) change(before, now map[string]string, touched map[string]bool) []byte {
	changed := false
	note := func(name string) {
		was, had := before[name]
		value, has := now[name]
		switch {
		case has && (!had || was != value || touched[name]):
			t.applied[name], changed = &value, true
		case !has && (had || touched[name]):
			t.applied[name], changed = nil, true
		}
	}
	for name := range before {
		note(name)
	}
	for name := range now {
		note(name)
	}
	for name := range touched {
		note(name)
	}
	if !changed {
		return nil
	}
	return script(t.applied)
}

// script returns POSIX shell that sets and unsets variables.
func script(vars map[string]*string) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if value := vars[name]; value == nil {
			b.WriteString("unset " + name + "\n")
		} else {
			b.WriteString("export " + name + "=" + quote(*value) + "\n")
		}
	}
	return []byte(b.String())
}

// quote returns text as one word of a POSIX shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
