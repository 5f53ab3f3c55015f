package terminal

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// termName is the TERM of terminals.
const termName = "xterm-256color"

// DefaultSearchPath is the PATH of terminals, whatever the agent's is.
const DefaultSearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited lists the only variables that terminals get from the agent.
var inherited = []string{"TZ"}

// plan checks p and returns what to start for it, but for the account.
func (h *Host) plan(session protocol.SessionID, id protocol.PTYID, p op.PTYCreate) (pty.Launch, error) {
	l := pty.Launch{Cols: protocol.DefaultCols, Rows: protocol.DefaultRows}
	if p.Cols < 0 || p.Rows < 0 {
		return pty.Launch{}, protocol.Errorf(protocol.KindInvalid, "negative size")
	}
	if p.Cols > 0 {
		l.Cols = min(p.Cols, protocol.MaxCols)
	}
	if p.Rows > 0 {
		l.Rows = min(p.Rows, protocol.MaxRows)
	}
	switch {
	case p.Command == "" && len(p.Args) > 0:
		return pty.Launch{}, protocol.Errorf(protocol.KindInvalid, "args without a command")
	case p.Command == "":
		l.Argv = []string{h.config.Shell, "-l"}
	case len(p.Args) == 0:
		l.Argv = []string{"/bin/sh", "-c", p.Command}
	default:
		l.Argv = append([]string{p.Command}, p.Args...)
	}
	if strings.HasPrefix(l.Argv[0], "-") || slices.ContainsFunc(l.Argv, hasNUL) {
		return pty.Launch{}, protocol.Errorf(protocol.KindInvalid, "not a command")
	}
	var err error
	l.Dir, err = h.folder(p.Dir)
	return l, err
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// folder returns the path of dir, which is relative to the workspace, or an
// absolute path in it. No symbolic link on the way may lead out.
func (h *Host) folder(dir string) (string, error) {
	invalid := protocol.Errorf(protocol.KindInvalid, "dir is not a folder below the workspace")
	if filepath.IsAbs(dir) {
		rel, err := filepath.Rel(h.config.Workspace, dir)
		if err != nil {
			return "", invalid
		}
		dir = rel
	}
	dir = filepath.Clean(dir)
	if !filepath.IsLocal(dir) || hasNUL(dir) {
		return "", invalid
	}
	root, err := os.OpenRoot(h.config.Workspace)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if st, err := root.Stat(dir); err != nil || !st.IsDir() {
		return "", invalid
	}
	return filepath.Join(h.config.Workspace, dir), nil
}

// environment returns the whole environment of a terminal: of the agent's own,
// which may hold secrets, only what inherited names.
func environment(config Config, session protocol.SessionID, id protocol.PTYID, a account.Account) []string {
	env := []string{
		"TERM=" + termName,
		"COLORTERM=truecolor",
		"LANG=C.UTF-8",
		"PATH=" + config.SearchPath + ":" + filepath.Join(a.Home, process.HomePrograms),
		"HOME=" + a.Home,
		"USER=sandbox",
		"LOGNAME=sandbox",
		"SHELL=" + config.Shell,
		"FAIRLEAD_SESSION_ID=" + string(session),
		"FAIRLEAD_PTY_ID=" + string(id),
	}
	if a.UID >= 0 && !shared(os.TempDir()) {
		// Some programs end without a word when they can't write there.
		env = append(env, "TMPDIR="+a.Home, "CLAUDE_CODE_TMPDIR="+a.Home)
	}
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// shared reports whether everybody may write to dir.
func shared(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.Mode().Perm()&0o003 == 0o003
}

// commandLine returns what a list of terminals shows as the command.
func commandLine(p op.PTYCreate, l pty.Launch) string {
	if p.Command == "" {
		return l.Argv[0]
	}
	return strings.Join(append([]string{p.Command}, p.Args...), " ")
}

// findShell returns the shell of new terminals. A $SHELL that lets nobody in,
// as services have, is not one.
func findShell() string {
	for _, path := range []string{os.Getenv("SHELL"), "/bin/bash"} {
		base := filepath.Base(path)
		if filepath.IsAbs(path) && base != "nologin" && base != "false" && unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return "/bin/sh"
}

// An agentPlan says which coding agent to start, and how.
type agentPlan struct {
	name string // shown to viewers
	cli  string // of a known coding agent; "": of none
	argv []string
	idle bool // it has nothing to do before somebody tells it
}

// planAgent checks s and returns what to start for it, for a user whose home is
// home.
func (h *Host) planAgent(s op.AgentStart, home string) (plan agentPlan, err error) {
	program := s.Command
	switch {
	case s.Command == "":
		cli, known := process.Find(s.Name)
		if !known {
			return agentPlan{}, protocol.Errorf(protocol.KindInvalid, "no command, and not the name of a known coding agent")
		}
		program, plan.idle = cli.Command, len(s.Args) == 0
		plan.argv = append([]string{program}, s.Args...)
	case len(s.Args) == 0:
		program, _ = process.Program(s.Command)
		plan.argv = []string{"/bin/sh", "-c", s.Command}
	default:
		plan.argv = append([]string{program}, s.Args...)
	}
	if strings.HasPrefix(plan.argv[0], "-") || slices.ContainsFunc(plan.argv, hasNUL) {
		return agentPlan{}, protocol.Errorf(protocol.KindInvalid, "not a command")
	}
	if program != "" {
		if err := process.CheckInstalled(program, h.config.SearchPath, home); err != nil {
			return agentPlan{}, err
		}
	}
	plan.name = cmp.Or(s.Name, filepath.Base(program), "agent")
	if len(plan.name) > protocol.MaxAgentNameBytes || strings.ContainsFunc(plan.name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return agentPlan{}, protocol.Errorf(protocol.KindInvalid, "not a name for a coding agent")
	}
	plan.cli = cmp.Or(process.KnownAgent(filepath.Base(program)), process.KnownAgent(plan.name))
	return plan, nil
}
