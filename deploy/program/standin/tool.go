package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Tools that ask a person something.
const (
	askUserQuestion = "AskUserQuestion"
	exitPlanMode    = "ExitPlanMode"
)

// choice is what the step question asks.
const choice = `{"questions":[{"question":"Which one?","header":"Choice","multiSelect":false,` +
	`"options":[{"label":"A","description":"the first"},{"label":"B","description":"the second"}]}]}`

// runTool does what a tool does with input, in dir.
func runTool(ctx context.Context, dir, name string, input json.RawMessage) (output string, failed bool) {
	var in struct {
		Command string            `json:"command"`
		Path    string            `json:"file_path"`
		Content string            `json:"content"`
		Answers map[string]string `json:"answers"`
	}
	_ = json.Unmarshal(input, &in) // what is missing is empty
	if in.Path != "" && !filepath.IsAbs(in.Path) {
		in.Path = filepath.Join(dir, in.Path)
	}
	switch name {
	case "Bash":
		return runCommand(ctx, dir, in.Command)
	case "Write":
		if err := os.WriteFile(in.Path, []byte(in.Content), 0o644); err != nil {
			return err.Error(), true
		}
		return "File created successfully at: " + in.Path, false
	case "Read":
		b, err := os.ReadFile(in.Path)
		if err != nil {
			return err.Error(), true
		}
		return string(b), false
	case askUserQuestion:
		answers, _ := json.Marshal(in.Answers) // can't fail
		return "User has answered your questions: " + string(answers), false
	case exitPlanMode:
		return "User has approved your plan", false
	}
	return name + " did nothing", false
}

// runCommand runs a shell's command in a process group of its own, which is
// killed when ctx ends.
func runCommand(ctx context.Context, dir, command string) (output string, failed bool) {
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second // for what it leaves behind
	b, err := c.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("Exit code %d\n%s", c.ProcessState.ExitCode(), b), true
	}
	return string(b), false
}
