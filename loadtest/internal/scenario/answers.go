package scenario

import (
	"bytes"
	"context"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
)

const (
	// answerWait bounds the wait for an answer of a program in a terminal.
	answerWait = 15 * time.Second
	// maxAnswers bounds what is kept of its output, in bytes.
	maxAnswers = 64 << 10
)

// answers hears what a program in a terminal says until somebody else does.
type answers struct {
	viewer *client.Viewer // static once somebody waits

	// Guarded by the viewer's lock.
	text []byte
	next client.Handler // gets everything from then on; nil: nobody yet
}

// Output implements [client.Handler].
func (a *answers) Output(p []byte, at time.Time) {
	if a.next != nil {
		a.next.Output(p, at)
	} else if len(a.text) < maxAnswers {
		a.text = append(a.text, p...)
	}
}

// Jump implements [client.Handler].
func (a *answers) Jump(j client.Jump) {
	if a.next != nil {
		a.next.Jump(j)
	}
}

// Lost implements [client.Handler].
func (a *answers) Lost(at time.Time, why error) {
	if a.next != nil {
		a.next.Lost(at, why)
	}
}

// await waits until text has come.
func (a *answers) await(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return a.viewer.Await(ctx, text, func() bool { return bytes.Contains(a.text, []byte(text)) })
}
