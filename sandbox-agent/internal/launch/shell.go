package launch

import "github.com/fairlead/fairlead/protocol/op"

// Scripts of shells that resume a session, whose id is their first argument: it is
// never read as shell text. Where there is no such session the program begins anew,
// as people of seed 002's web client are used to.
var resumeScripts = map[string]string{
	"claude":   `claude --resume "$1" || claude`,
	"cursor":   `cursor-agent --resume="$1"`,
	"codex":    `codex resume "$1" || codex`,
	"gemini":   `gemini --resume "$1"`,
	"opencode": `opencode --session "$1"`,
}

// shellArgv returns what runs in a shell's terminal; shell is that of plain ones.
func shellArgv(sh *op.Shell, shell string) []string {
	switch program := sh.Program(); {
	case sh.Resumes():
		return []string{"bash", "-c", resumeScripts[sh.Provider], "bash", sh.SessionID}
	case program != "" && sh.InitialCommand == "":
		return []string{"bash", "-c", program}
	case sh.InitialCommand != "":
		return []string{"bash", "-c", sh.InitialCommand}
	}
	return []string{shell, "-l"}
}

// ShellVariables are in the environment of shells beside what all terminals have.
// Programs that look at the terminal otherwise believe that it has few colours.
func ShellVariables(sh *op.Shell) []string {
	if sh == nil {
		return nil
	}
	return []string{"FORCE_COLOR=3"}
}

// shellLine returns what a list of terminals shows as a shell's command: never
// whose session it resumes.
func shellLine(sh *op.Shell, argv []string) string {
	switch {
	case sh.Program() != "":
		return sh.Program()
	case sh.InitialCommand != "":
		return sh.InitialCommand
	}
	return argv[0]
}
