package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/e2e"
)

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// measure starts the stack and the baseline and prints all figures.
func measure(bin string, viewers int, only string) error {
	dir, err := os.MkdirTemp("", "fairlead-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	stack, err := e2e.Start(bin, dir)
	if err != nil {
		return err
	}
	defer stack.Stop()
	base, err := startBaseline()
	if err != nil {
		return err
	}
	defer base.stop()

	var figures []*figure
	if only != "fanout" {
		more, err := measureEcho(context.Background(), stack, base)
		if err != nil {
			return fmt.Errorf("echo: %w", err)
		}
		figures = append(figures, more...)
	}
	if only != "echo" {
		more, err := measureFanout(context.Background(), stack, base, viewers)
		if err != nil {
			return fmt.Errorf("fan-out: %w", err)
		}
		figures = append(figures, more)
	}
	return report(figures)
}

func report(figures []*figure) error {
	var missed []string
	for _, f := range figures {
		fmt.Println(f)
		if f.evaluate().high > f.bound {
			missed = append(missed, f.name)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, ", "))
	}
	return nil
}

// A baseline is the process that serves the baselines.
type baseline struct {
	cmd *exec.Cmd
	url string
}

// startBaseline runs this program in its other role.
func startBaseline() (*baseline, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, baselineRole)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &baseline{cmd: cmd}
	if _, err := fmt.Fscanln(out, &b.url); err != nil {
		b.stop()
		return nil, fmt.Errorf("baseline: %w", err)
	}
	return b, nil
}

func (b *baseline) stop() {
	b.cmd.Process.Kill()
	b.cmd.Wait()
}
