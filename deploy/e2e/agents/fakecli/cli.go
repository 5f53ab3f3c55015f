package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// run is one life of the agent called name.
func run(ctx context.Context, name string, args []string, in io.Reader, out io.Writer) error {
	s, err := read(name, os.Getenv("HOME"))
	if err != nil {
		return err
	}
	cmd := exec.Command(s.server[0], s.server[1:]...)
	cmd.Env = s.environ(os.Environ())
	cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "fakecli-" + name, Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { fmt.Fprintln(out, name+": tools changed") },
	})
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer session.Close()
	c := cli{name: name, settings: s, session: session, out: out}
	c.hook(ctx, "ready", "")
	fmt.Fprintf(out, "%s: ready\n", name)
	if len(args) > 0 {
		return c.turn(ctx, strings.Join(args, " "))
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() && strings.TrimSpace(lines.Text()) != "/exit" {
		if prompt := strings.TrimSpace(lines.Text()); prompt != "" {
			if err := c.turn(ctx, prompt); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// A cli is an agent that is connected.
type cli struct {
	name     string
	settings settings
	session  *mcp.ClientSession
	out      io.Writer
}

// turn does what prompt says.
func (c cli) turn(ctx context.Context, prompt string) error {
	c.hook(ctx, "start", "")
	tool, arguments, _ := strings.Cut(prompt, " ")
	params := &mcp.CallToolParams{Name: tool}
	if arguments != "" {
		params.Arguments = json.RawMessage(arguments)
	}
	listed, err := c.session.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	fmt.Fprintf(c.out, "%s: %d tools\n", c.name, len(listed.Tools))
	result, err := c.session.CallTool(ctx, params)
	said := ""
	if err != nil {
		said = "the call failed: " + err.Error()
	} else {
		for _, content := range result.Content {
			if text, ok := content.(*mcp.TextContent); ok {
				said += text.Text
			}
		}
	}
	fmt.Fprintf(c.out, "%s: %s says %s\n", c.name, tool, said)
	c.hook(ctx, "stop", tool+" says "+said)
	fmt.Fprintf(c.out, "%s: done\n", c.name)
	return nil
}

// hook runs what the settings have for a moment in a turn, as the agent does.
func (c cli) hook(ctx context.Context, moment, said string) {
	for _, h := range c.settings.hooks[moment] {
		input, err := json.Marshal(map[string]string{h.said: said})
		if err != nil {
			panic(err) // strings can be encoded
		}
		cmd := exec.CommandContext(ctx, h.argv[0], h.argv[1:]...)
		cmd.Env = os.Environ()
		switch h.how {
		case onStdin:
			cmd.Stdin = strings.NewReader(string(input))
		case asArgument:
			cmd.Args = append(cmd.Args, strings.TrimSuffix(string(input), "}")+`,"type":"agent-turn-complete"}`)
		case inEnvironment:
			cmd.Env = append(cmd.Env, "FAIRLEAD_HOOK_INPUT="+string(input))
		}
		output, err := cmd.CombinedOutput()
		if err != nil || len(output) > 0 {
			fmt.Fprintf(c.out, "%s: hook %s: %v %s\n", c.name, moment, err, output)
		}
	}
}
