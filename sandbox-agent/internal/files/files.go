// Package files lets people and programs read and change the workspace: by HTTP
// routes that relays ask for, and by tools.
package files

import (
	"log/slog"
	"path"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// DefaultMarked are patterns, as of path.Match, for names of files that usually
// hold secrets.
var DefaultMarked = []string{
	".env", ".env.*", "*.pem", "*.key", ".netrc", ".npmrc", ".pypirc", ".git-credentials", "id_rsa", "id_ed25519",
}

// Files serves the workspace, which all sessions of a sandbox share. Nothing
// that it serves is shown as a page by a browser.
//
// People who may not set secrets, see [protocol.CapEnv], are served a file whose
// name is marked with its secrets masked. They can't rename it to a name that
// isn't marked, either.
type Files struct {
	FS        *workspace.FS
	Redact    func() Masker // makes the masker of one stream; nil: nothing is masked
	Marked    []string      // patterns for names of files with secrets, such as DefaultMarked; nil: all files
	KeepAlive time.Duration // how often a watch without changes sends something; default: 15 s
	Log       *slog.Logger  // nil: silent
}

// Close closes the workspace.
func (f *Files) Close() error { return f.FS.Close() }

// secret reports whether a file of one of the names is masked for caller.
func (f *Files) secret(caller toolbox.Caller, names ...string) bool {
	if caller.Allows("", protocol.CapEnv) {
		return false
	}
	for _, name := range names {
		if f.marked(name) {
			return true
		}
	}
	return false
}

func (f *Files) marked(name string) bool {
	if f.Marked == nil {
		return true
	}
	for _, pattern := range f.Marked {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// move moves the file from to the path to, for a caller who may give it that
// name.
func (f *Files) move(caller toolbox.Caller, from, to string, overwrite bool) (protocol.FileInfo, error) {
	source, err := workspace.Clean(from)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	target, err := workspace.Clean(to)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	if f.secret(caller, path.Base(source)) && !f.marked(path.Base(target)) {
		return protocol.FileInfo{}, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to give this file another sort of name")
	}
	return f.FS.Move(source, target, overwrite)
}
