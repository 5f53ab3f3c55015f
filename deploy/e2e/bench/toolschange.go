package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// changeRounds is how often a block attaches and detaches an account.
	changeRounds = 20
	// changeBound is how long a change may take to reach a running program, p99,
	// in milliseconds.
	changeBound = 200
	// changePatience bounds the wait for one.
	changePatience = 5 * time.Second
)

// measureChanges times changes of a terminal's tools: from the request that
// attaches or detaches an account to the notification on the standard output of
// the bridge that a coding agent has as its MCP server.
func measureChanges(ctx context.Context, bin string) ([]*figure, error) {
	hub := e2e.NewFakeGitHub()
	defer hub.Close()
	dir, err := os.MkdirTemp("", "fairlead-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	setup, err := hub.Setup(dir)
	if err != nil {
		return nil, err
	}
	stack, stop, err := startStack(bin, "--integrations", setup)
	if err != nil {
		return nil, err
	}
	defer stop()
	account, err := hub.Connect(ctx, stack.Ready.User("alice"))
	if err != nil {
		return nil, err
	}
	github, err := stack.GitHubAt(ctx, "alice", account, stack.Ready.PTYID)
	if err != nil {
		return nil, err
	}
	credentials, err := e2e.Credentials(stack.Ready.Sandboxes[0].PID, stack.Ready.PTYID)
	if err != nil {
		return nil, err
	}
	cli, err := startBridge(bin, credentials)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cli.stop() }() // it has told all it could
	delay := &figure{name: "a change of tools to a running program, p99", bound: changeBound, unit: "ms"}
	for n := 0; n < blocks || n < maxBlocks && !delay.decided(); n++ {
		var took []time.Duration
		for range changeRounds {
			for _, change := range []func(context.Context) error{github.Attach, github.Detach} {
				began := time.Now()
				if err := change(ctx); err != nil {
					return nil, err
				}
				if err := cli.await("notifications/tools/list_changed"); err != nil {
					return nil, err
				}
				took = append(took, time.Since(began))
			}
		}
		delay.add(float64(percentile(took, 99)) / float64(time.Millisecond))
		fmt.Fprintf(os.Stderr, "changes block %d: p50 %v p99 %v\n", n+1, percentile(took, 50), percentile(took, 99))
	}
	return []*figure{delay}, nil
}

// A bridgeProcess is a coding agent's MCP server, and we are the coding agent.
type bridgeProcess struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func startBridge(bin string, c protocol.MCPCredentials) (*bridgeProcess, error) {
	p := &bridgeProcess{cmd: exec.Command(filepath.Join(bin, "sandbox-agent"), "mcp-bridge"), lines: make(chan string, 64)}
	p.cmd.Env = []string{
		"FAIRLEAD_MCP_URL=" + c.URL, "FAIRLEAD_MCP_SECRET=" + c.Secret,
		"FAIRLEAD_SESSION_ID=" + string(c.SessionID), "FAIRLEAD_PTY_ID=" + string(c.PTYID), "HOME=/nonexistent",
	}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	fmt.Fprintln(p.in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	if err := p.await(`"serverInfo"`); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	fmt.Fprintln(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(p.in, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if err := p.await(`"terminal_list"`); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// await waits for a line that holds part.
func (p *bridgeProcess) await(part string) error {
	patience := time.After(changePatience)
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				return errors.New("the bridge has ended")
			}
			if strings.Contains(line, part) {
				return nil
			}
		case <-patience:
			return fmt.Errorf("no %s within %s", part, changePatience)
		}
	}
}

func (p *bridgeProcess) stop() error {
	p.in.Close()
	for range p.lines { // until its end
	}
	return p.cmd.Wait()
}
