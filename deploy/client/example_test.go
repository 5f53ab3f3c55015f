package client_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/protocol/op"
)

// screen draws a terminal on standard output.
type screen struct{}

func (screen) Output(p []byte, _ time.Time)          { os.Stdout.Write(p) }
func (screen) Keyframe(p []byte, _ bool)             { os.Stdout.Write(p) }
func (screen) Jump(client.Jump)                      {}
func (screen) Lost(_ time.Time, why error)           { fmt.Fprintln(os.Stderr, "connection lost:", why) }
func (screen) Opened(relay string, _ client.Joining) { fmt.Fprintln(os.Stderr, "connected to", relay) }
func (screen) Message(string, []byte)                {}

// A command line that opens a terminal, runs one command in it, and shows it
// until it ends.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	user := client.NewUser(client.UserOptions{
		Token: os.Getenv("FAIRLEAD_TOKEN"), Session: "ses_1", Relays: []string{"https://relay.example"},
	})
	defer user.Close()
	pty, err := user.CreatePTY(ctx, op.PTYCreate{Cols: 80, Rows: 24})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	viewer := client.Watch(ctx, user, client.Options{PTY: pty, Controls: true}, screen{})
	defer viewer.Close()
	if err := viewer.Type(ctx, "uptime; exit\r", nil); err != nil { // waits for control
		fmt.Fprintln(os.Stderr, err)
		return
	}
	<-viewer.Ended()
}
