// Package hooks writes our MCP server and our hooks into the settings of the
// coding agents in a terminal's home, and removes them again. It also
// implements what the hooks run.
//
// Each agent keeps its settings for its user in its own files and format. All
// else in them stays as it is, comments and order included. A file that can't
// be parsed is never written. README.md lists the files and entries.
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

// Options say what to wire.
type Options struct {
	Agent   string // claude, gemini, opencode, codex, droid, openclaw or cursor; "": all
	Command string // the absolute path of sandbox-agent
	// ToolsOnly leaves the hooks out: nobody waits for what they report.
	ToolsOnly bool
	// Chown gives a newly made file or folder to the terminal's user; nil: it
	// stays the caller's.
	Chown func(*os.File) error
}

// ErrUnknownAgent says that no coding agent has the name.
var ErrUnknownAgent = errors.New("no such coding agent")

// selected returns the agents that o selects.
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

// A FileError names the settings file that can't be wired.
type FileError struct {
	File string // relative to the home
	Err  error
}

func (e *FileError) Error() string { return "~/" + e.File + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// A change is the planned content of a file.
type change struct {
	name          string
	before, after []byte // nil: there is no file
	made          []string
}

func (c change) same() bool {
	return (c.before == nil) == (c.after == nil) && bytes.Equal(c.before, c.after)
}

// plan returns what Wire does for a, as o says.
func (h homeDir) plan(a agent, o Options) ([]change, error) {
	var changes []change
	for _, f := range a.files(o.Command) {
		if o.ToolsOnly {
			if f.format = f.tools(); f.format == nil {
				continue
			}
		}
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

// before reads f before a change.
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

// Wire puts our MCP server and our hooks into the settings in home. Entries
// that are there already stay, so a second call writes nothing. If one file of
// an agent can't be wired, none of that agent's is written, but all other
// agents' are. The error is then a join of [FileError]s.
func Wire(home *os.Root, o Options) error {
	selected, err := o.selected()
	if err != nil {
		return err
	}
	p := homeDir{home, o.Chown}
	r := readRecord(p)
	var errs []error
	for _, a := range selected {
		changes, err := p.plan(a, o)
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

// Unwire removes from the settings in home what Wire has put there. It also
// removes files and folders that Wire made and that hold nothing else. A file
// that can't be parsed stays as it is, and the error names it.
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
			_ = p.root.Remove(dir) // fails if the folder isn't empty
		}
	}
	if err := p.forget(r); err != nil {
		errs = append(errs, &FileError{recordFile, err})
	}
	return errors.Join(errs...)
}

// unwire removes our entries from f.
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

// forget stores the rest of the record, without the folders that hold no file
// of ours any more.
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

// An AgentStatus says whether one agent is wired.
type AgentStatus struct {
	Agent string
	Files []string // relative to the home
	Wired bool     // Wire would change nothing
	Err   error    // why it can't be wired
}

// Status returns the status of the agents that o selects.
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
		changes, err := p.plan(a, o)
		s.Err = err
		s.Wired = err == nil && !slices.ContainsFunc(changes, func(c change) bool { return !c.same() })
		all = append(all, s)
	}
	return all, nil
}
