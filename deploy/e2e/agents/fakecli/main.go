// Command fakecli stands in for a coding agent in tests: by the name under which
// it is called (claude, gemini, opencode, codex, droid or openclaw) it reads that
// agent's settings in $HOME, starts the MCP server that they name over stdio, and
// runs their hooks, with no model in it.
//
// With arguments after the name it takes one turn and ends. Without, it waits for
// a prompt on standard input, takes a turn for it, and so on to the end of input
// or "/exit". The prompt is the name of a tool and, optionally, its arguments as
// JSON; in a turn it lists the tools, calls that one and says what came of it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fakecli:", err)
		os.Exit(1)
	}
}
