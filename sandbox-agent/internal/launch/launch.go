// Package launch says how the programs of terminals are started: what runs, in
// which folder, and with which environment.
package launch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// TermName is the TERM of terminals.
const TermName = "xterm-256color"

// DefaultSearchPath is the PATH of terminals, whatever the agent's is.
const DefaultSearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited lists the only variables that terminals get from the agent.
var inherited = []string{"TZ"}

// A Setup is what all terminals of a host have in common.
type Setup struct {
	Workspace  string // where they start
	Shell      string
	SearchPath string // PATH of terminals
}

// Plan checks p and returns what to start for it, but for the account and the
// environment. It fails with KindInvalid.
func (s Setup) Plan(p op.PTYCreate) (pty.Launch, error) {
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
	if p.Shell != nil {
		return s.planShell(l, p.Shell)
	}
	switch {
	case p.Command == "" && len(p.Args) > 0:
		return pty.Launch{}, protocol.Errorf(protocol.KindInvalid, "args without a command")
	case p.Command == "":
		l.Argv = []string{s.Shell, "-l"}
	case len(p.Args) == 0:
		l.Argv = []string{"/bin/sh", "-c", p.Command}
	default:
		l.Argv = append([]string{p.Command}, p.Args...)
	}
	if strings.HasPrefix(l.Argv[0], "-") || slices.ContainsFunc(l.Argv, hasNUL) {
		return pty.Launch{}, protocol.Errorf(protocol.KindInvalid, "not a command")
	}
	var err error
	l.Dir, err = s.Folder(p.Dir)
	return l, err
}

// planShell completes what to start for a shell.
func (s Setup) planShell(l pty.Launch, sh *op.Shell) (pty.Launch, error) {
	err := sh.Check()
	if err != nil {
		return l, err
	}
	l.Argv = shellArgv(sh, s.Shell)
	if l.Dir, err = s.Folder(sh.ProjectPath); protocol.KindOf(err) == protocol.KindInvalid {
		err = protocol.Errorf(protocol.KindInvalid, op.ShellBadPath)
	}
	return l, err
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// Folder returns the path of dir, which is relative to the workspace, or an
// absolute path in it. No symbolic link on the way may lead out. It fails with
// KindInvalid.
func (s Setup) Folder(dir string) (string, error) {
	invalid := protocol.Errorf(protocol.KindInvalid, "dir is not a folder below the workspace")
	if filepath.IsAbs(dir) {
		rel, err := filepath.Rel(s.Workspace, dir)
		if err != nil {
			return "", invalid
		}
		dir = rel
	}
	dir = filepath.Clean(dir)
	if !filepath.IsLocal(dir) || hasNUL(dir) {
		return "", invalid
	}
	root, err := os.OpenRoot(s.Workspace)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if st, err := root.Stat(dir); err != nil || !st.IsDir() {
		return "", invalid
	}
	return filepath.Join(s.Workspace, dir), nil
}

// Environment returns the environment of programs of the terminal id of session,
// which run as a. Of the agent's own, which may hold secrets, there is only what
// inherited names.
func (s Setup) Environment(session protocol.SessionID, id protocol.PTYID, a account.Account) []string {
	env := []string{
		"TERM=" + TermName,
		"COLORTERM=truecolor",
		"LANG=C.UTF-8",
		"PATH=" + s.SearchPath + ":" + filepath.Join(a.Home, process.HomePrograms),
		"HOME=" + a.Home,
		"USER=sandbox",
		"LOGNAME=sandbox",
		"SHELL=" + s.Shell,
		"FAIRLEAD_SESSION_ID=" + string(session),
		account.IDVariable + "=" + string(id),
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

// Below returns the path of a folder below the workspace, "" for the workspace and
// for a folder that isn't below it.
func (s Setup) Below(folder string) string {
	rel, err := filepath.Rel(s.Workspace, folder)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return ""
	}
	return rel
}

// CommandLine returns what a list of terminals shows as the command: of what p
// doesn't name, the program alone.
func CommandLine(p op.PTYCreate, l pty.Launch) string {
	if p.Shell != nil {
		return shellLine(p.Shell, l.Argv)
	}
	if p.Command == "" {
		return l.Argv[0]
	}
	return strings.Join(append([]string{p.Command}, p.Args...), " ")
}

// FindShell returns the shell of new terminals. A $SHELL that lets nobody in,
// as services have, is not one.
func FindShell() string {
	for _, path := range []string{os.Getenv("SHELL"), "/bin/bash"} {
		base := filepath.Base(path)
		if filepath.IsAbs(path) && base != "nologin" && base != "false" && unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return "/bin/sh"
}

// An Agent says which coding agent to start, and how.
type Agent struct {
	Name string // shown to viewers
	CLI  string // of a known coding agent; "": of none
	Argv []string
	Idle bool // it has nothing to do before somebody tells it
}

// PlanAgent checks start and returns what to start for it, for a user whose home is
// home. It fails with KindInvalid, which says what to install when there is no such
// command.
func (s Setup) PlanAgent(start op.AgentStart, home string) (plan Agent, err error) {
	program := start.Command
	switch {
	case start.Command == "":
		cli, known := process.Find(start.Name)
		if !known {
			return Agent{}, protocol.Errorf(protocol.KindInvalid, "no command, and not the name of a known coding agent")
		}
		program, plan.Idle = cli.Command, len(start.Args) == 0
		plan.Argv = append([]string{program}, start.Args...)
	case len(start.Args) == 0:
		program, _ = process.Program(start.Command)
		plan.Argv = []string{"/bin/sh", "-c", start.Command}
	default:
		plan.Argv = append([]string{program}, start.Args...)
	}
	if strings.HasPrefix(plan.Argv[0], "-") || slices.ContainsFunc(plan.Argv, hasNUL) {
		return Agent{}, protocol.Errorf(protocol.KindInvalid, "not a command")
	}
	if program != "" {
		if err := process.CheckInstalled(program, s.SearchPath, home); err != nil {
			return Agent{}, err
		}
	}
	plan.Name = cmp.Or(start.Name, filepath.Base(program), "agent")
	if len(plan.Name) > protocol.MaxAgentNameBytes || strings.ContainsFunc(plan.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Agent{}, protocol.Errorf(protocol.KindInvalid, "not a name for a coding agent")
	}
	plan.CLI = cmp.Or(process.KnownAgent(filepath.Base(program)), process.KnownAgent(plan.Name))
	return plan, nil
}

// CredentialVariables returns c as a terminal's programs find it in their
// environment, beside the ids that are there anyway, and under the names of seed
// 001.
func CredentialVariables(c protocol.MCPCredentials) []string {
	return []string{
		"FAIRLEAD_MCP_URL=" + c.URL, "FAIRLEAD_MCP_SECRET=" + c.Secret,
		"ORCABOT_SESSION_ID=" + string(c.SessionID), "ORCABOT_PTY_ID=" + string(c.PTYID),
		"ORCABOT_MCP_URL=" + c.URL, "ORCABOT_MCP_SECRET=" + c.Secret,
	}
}

// WriteCredentials puts c into a's home, where programs that drop it from their
// environment find it.
func WriteCredentials(c *protocol.MCPCredentials, a account.Account) error {
	if c == nil {
		return nil
	}
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return a.WritePrivate(account.CredentialsFile, append(content, '\n'))
}

// Furnish has by write into a's home what home.Agent needs to find the sandbox's
// tools.
func Furnish(by feature.Furnisher, home feature.Home, a account.Account) error {
	root, err := os.OpenRoot(a.Home)
	if err != nil {
		return fmt.Errorf("home: %w", err)
	}
	defer root.Close()
	home.GID, home.Root = a.GID, root
	return by.FurnishHome(home)
}
