// Package hooks writes our MCP server and our hooks into the settings of the
// coding agents in a terminal's home, takes them out again, and is what the hooks
// run.
//
// Everything is in files that an agent keeps for its user, each in its own
// format: what else is in them stays as it is, comments and order included. A
// file that can't be understood is never written. README.md says what is where.
package hooks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Options say what is wired.
type Options struct {
	Agent   string // claude, gemini, opencode, codex, droid or openclaw; "": all
	Command string // the absolute path of sandbox-agent
	// Chown gives a file or folder that was just made to the terminal's user;
	// nil: it stays the caller's.
	Chown func(*os.File) error
}

// ErrUnknownAgent says that there is no coding agent of the name.
var ErrUnknownAgent = errors.New("no such coding agent")

// selected returns the agents that o speaks of.
func (o Options) selected() ([]agent, error) {
	if !filepath.IsAbs(o.Command) {
		return nil, fmt.Errorf("the path of sandbox-agent is not absolute: %q", o.Command)
	}
	if o.Agent == "" {
		return agents, nil
	}
	a, ok := agentCalled(o.Agent)
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownAgent, o.Agent)
	}
	return []agent{a}, nil
}

// A FileError names the settings file that stands in the way.
type FileError struct {
	File string // relative to the home
	Err  error
}

func (e *FileError) Error() string { return "~/" + e.File + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// A change is what is to become of a file.
type change struct {
	name          string
	before, after []byte // nil: there is no file
	made          []string
}

func (c change) same() bool {
	return (c.before == nil) == (c.after == nil) && bytes.Equal(c.before, c.after)
}

// plan returns what Wire does for a.
func (h homeDir) plan(a agent, command string) ([]change, error) {
	var changes []change
	for _, f := range a.files(command) {
		c, err := h.before(f)
		if err == nil {
			c.after, c.made, err = f.wire(c.before)
		}
		if err != nil {
			return nil, &FileError{c.name, err}
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// before reads f.
func (h homeDir) before(f file) (change, error) {
	c := change{name: f.name}
	var err error
	c.before, err = h.read(f.name)
	if errors.Is(err, fs.ErrNotExist) && f.other != "" {
		if text, err2 := h.read(f.other); !errors.Is(err2, fs.ErrNotExist) {
			c.name, c.before, err = f.other, text, err2
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		c.before, err = nil, nil
	}
	return c, err
}

// Wire puts our MCP server and our hooks into the settings in home. What is there
// already is left alone; a second call writes nothing. Of an agent with a file
// that stands in the way nothing is written, of the others everything: the error
// is a join of [FileError]s then.
func Wire(home *os.Root, o Options) error {
	selected, err := o.selected()
	if err != nil {
		return err
	}
	p := homeDir{home, o.Chown}
	r := readRecord(p)
	var errs []error
	for _, a := range selected {
		changes, err := p.plan(a, o.Command)
		if err == nil {
			err = p.apply(&r, changes)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// apply stores the record, then the files.
func (h homeDir) apply(r *record, changes []change) error {
	changes = slices.DeleteFunc(changes, change.same)
	if len(changes) == 0 {
		return nil
	}
	for _, c := range changes {
		r.file(c.name).note(c.before == nil, c.made)
	}
	if err := r.write(h); err != nil {
		return &FileError{recordFile, err}
	}
	for _, c := range changes {
		made, err := h.write(c.name, c.after)
		r.Folders = append(r.Folders, made...)
		if err != nil {
			return &FileError{c.name, err}
		}
	}
	if err := r.write(h); err != nil {
		return &FileError{recordFile, err}
	}
	return nil
}

// Unwire takes out of the settings in home what Wire has put there, with files
// and folders that it made and in which nothing else is. A file that can't be
// understood is left as it is, and the error names it.
func Unwire(home *os.Root, o Options) error {
	selected, err := o.selected()
	if err != nil {
		return err
	}
	p := homeDir{home, o.Chown}
	r := readRecord(p)
	folders := slices.Clone(r.Folders)
	var errs []error
	for _, a := range selected {
		for _, f := range a.files(o.Command) {
			if err := p.unwire(f, r); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, dir := range slices.Backward(folders) {
		if dir != path.Dir(recordFile) {
			_ = p.root.Remove(dir) // which fails where something is in it
		}
	}
	if err := p.forget(r); err != nil {
		errs = append(errs, &FileError{recordFile, err})
	}
	return errors.Join(errs...)
}

// unwire takes our entries out of f.
func (h homeDir) unwire(f file, r record) error {
	c, err := h.before(f)
	if err == nil && c.before != nil {
		var known fileRecord
		if k := r.Files[c.name]; k != nil {
			known = *k
		}
		c.after, err = f.unwire(c.before, known)
		switch {
		case err != nil || c.same():
		case c.after == nil:
			err = h.remove(c.name)
		default:
			_, err = h.write(c.name, c.after)
		}
	}
	if err != nil {
		return &FileError{c.name, err}
	}
	delete(r.Files, c.name)
	return nil
}

// forget stores what is left of the record: nothing of folders that no file of
// ours is in.
func (h homeDir) forget(r record) error {
	own := path.Dir(recordFile)
	r.Folders = slices.DeleteFunc(r.Folders, func(dir string) bool {
		for name := range r.Files {
			if strings.HasPrefix(name, dir+"/") {
				return false
			}
		}
		return dir != own
	})
	if len(r.Files) > 0 {
		return r.write(h)
	}
	if err := h.remove(recordFile); err != nil {
		return err
	}
	if slices.Contains(r.Folders, own) {
		_ = h.root.Remove(own) // others may have put something there
	}
	return nil
}

// An AgentStatus is how one agent stands.
type AgentStatus struct {
	Agent string
	Files []string // relative to the home
	Wired bool     // Wire has nothing to do
	Err   error    // what stands in the way
}

// Status returns how the agents that o speaks of stand.
func Status(home *os.Root, o Options) ([]AgentStatus, error) {
	selected, err := o.selected()
	if err != nil {
		return nil, err
	}
	p := homeDir{root: home}
	var all []AgentStatus
	for _, a := range selected {
		s := AgentStatus{Agent: a.name}
		for _, f := range a.files(o.Command) {
			s.Files = append(s.Files, f.name)
		}
		changes, err := p.plan(a, o.Command)
		s.Err = err
		s.Wired = err == nil && !slices.ContainsFunc(changes, func(c change) bool { return !c.same() })
		all = append(all, s)
	}
	return all, nil
}
