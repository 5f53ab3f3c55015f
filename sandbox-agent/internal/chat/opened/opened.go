// Package opened finds the programs that have a coding agent's session open.
package opened

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/codingagent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// maxOpenFiles bounds the files of one program that are looked at.
const maxOpenFiles = 4096

// Reports are what the hooks of coding agents in terminals have told of which
// sessions they have open. They are safe for concurrent use. The zero value is ready.
type Reports struct {
	mu sync.Mutex
	// Guarded by mu.
	last map[protocol.PTYID]report // of each terminal that is there
}

// A report is the last one of a terminal.
type report struct {
	session protocol.SessionID
	program string
	native  string // the provider's session
}

// Note notes that the coding agent called name has a provider's session open. A
// name that nobody knows is no provider's.
func (r *Reports) Note(session protocol.SessionID, pty protocol.PTYID, name, native string) {
	cli, known := process.Find(process.KnownAgent(name))
	if !known || !protocol.ValidConversation(protocol.ConversationID(native)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[protocol.PTYID]report)
	}
	r.last[pty] = report{session, cli.Command, native}
}

// Forget forgets a terminal.
func (r *Reports) Forget(pty protocol.PTYID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, pty)
}

// Of returns the terminals of session whose last report is of native, with the
// program that has it open.
func (r *Reports) Of(session protocol.SessionID, native string) map[protocol.PTYID]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := make(map[protocol.PTYID]string)
	for pty, last := range r.last {
		if last.session == session && last.native == native {
			found[pty] = last.program
		}
	}
	return found
}

// Has reports whether the process pid, whose command line is line, has a
// provider's session open: by its arguments, by a transcript that it holds open,
// or because it is the program of which a terminal has said so.
func Has(pid int, line []byte, native string, reported map[protocol.PTYID]string) bool {
	args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
	if resumes(args, native) {
		return true
	}
	program := programOf(args)
	if program == "" {
		return false
	}
	if holds(pid, native) {
		return true
	}
	for pty, of := range reported {
		if of == program && inTerminal(pid, pty) {
			return true
		}
	}
	return false
}

// resuming are the flags by which providers' programs resume a session.
var resuming = []string{"--resume", "-r", "resume", "--session", "-s", "--session-id"}

// resumes reports whether arguments resume a provider's session.
func resumes(args []string, native string) bool {
	for i, arg := range args {
		flag, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		if value == native && slices.Contains(resuming, flag) {
			return true
		}
	}
	return false
}

// programOf returns the coding agent's program that a command line begins with,
// perhaps behind an interpreter and its flags; "": none.
func programOf(args []string) string {
	for _, arg := range args[:min(len(args), 4)] {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(arg), ".js"), ".exe")
		if i := slices.IndexFunc(process.CLIs, func(c process.CLI) bool { return c.Command == name }); i >= 0 {
			return name
		}
	}
	return ""
}

// holds reports whether a process has the transcript of a session open.
func holds(pid int, native string) bool {
	dir, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return false // it has ended
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxOpenFiles) // what there is by then
	for _, name := range names {
		file, err := os.Readlink(filepath.Join(dir.Name(), name))
		if err == nil && strings.HasSuffix(file, native+".jsonl") {
			return true
		}
	}
	return false
}

// inTerminal reports whether a process was started in a terminal.
func inTerminal(pid int, pty protocol.PTYID) bool {
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return err == nil && slices.Contains(strings.Split(string(environ), "\x00"), codingagent.IDVariable+"="+string(pty))
}
