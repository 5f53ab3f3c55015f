package terminal

import (
	"bytes"
	"context"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

const (
	// statusEvery is how often it is looked whether a command has ended whose
	// mark in the output was lost.
	statusEvery = 250 * time.Millisecond
	// markOverdue is how many times that the output may take to come.
	markOverdue = 4
	// stepBytes is how much output is drawn before the rows that left the top
	// of the screen are taken, fewer than it holds.
	stepBytes = 512
	// maxMarkBytes bounds the mark of the end of a command.
	maxMarkBytes = 64
	// maxPromptLines is how many lines a prompt may have.
	maxPromptLines = 4
)

// A runOutput reads what a command prints and makes plain text of it: it draws
// all of the log from the prompt on, and takes the text from its screen.
type runOutput struct {
	*transcript.Follower
	terminal *Terminal
	name     string
	command  string

	// Owned by the goroutine that waits.
	epoch     protocol.Epoch
	screen    *screen.Screen
	pending   []byte // output not drawn yet: it may be the beginning of the mark
	text      []byte // of rows that left the top of the screen
	truncated bool
	code      int
	done      bool // the command has ended, with code
	exited    bool // the shell has
}

// newRunOutput returns what reads the output of command, called name, from here
// on. The caller holds view.mu.
func (t *Terminal) newRunOutput(command, name string) *runOutput {
	out := &runOutput{
		Follower: t.transcript.Follow(t.transcript.End()), terminal: t, name: name, command: command,
		epoch: t.transcript.Epoch(), screen: t.view.display.Fork(),
	}
	out.screen.TakeHistory(nil)
	out.screen.Write(nil, nil, []byte("\x1b[1J")) // of what was before, no trace
	return out
}

// await reads until the command has ended, and returns its outcome.
func (out *runOutput) await(ctx context.Context) (RunResult, error) {
	look := time.NewTicker(statusEvery)
	defer look.Stop()
	overdue := 0 // how often it was seen that the mark is missing
	for {
		out.read()
		switch {
		case out.done:
			return out.result(), nil
		case out.exited:
			return out.result(), protocol.Errorf(protocol.KindEnded, "the shell has ended")
		case overdue > markOverdue:
			return out.result(), nil
		}
		select {
		case <-out.Wake:
		case <-look.C:
			if code, ended := out.terminal.status(out.name); ended {
				out.code, overdue = code, overdue+1
			}
		case <-ctx.Done():
			out.read()
			return out.result(), protocol.Errorf(protocol.KindUnavailable, "the command runs on: it was not waited for any longer")
		}
	}
}

// read takes what the log has, up to the end of the command.
func (out *runOutput) read() {
	for !out.done && !out.exited {
		item, ok := out.step()
		switch {
		case !ok:
			return
		case item.Exited != nil:
			out.code = item.Exited.Code
			out.exited = true
			out.draw(out.pending)
			out.pending = nil
		case item.Resized != nil:
			out.draw(out.pending)
			out.pending = nil
			out.screen.Resize(item.Resized.Cols, item.Resized.Rows)
		default:
			out.print(item.Bytes)
		}
	}
}

// step returns the next thing in the log. What the log no longer holds, or
// another epoch doesn't, is left out.
func (out *runOutput) step() (transcript.Item, bool) {
	log := out.terminal.transcript
	item, ok, err := out.Next(stepBytes)
	if err != nil {
		out.Move(log.Newcomer())
		out.truncated, out.pending = true, nil
		item, ok, err = out.Next(stepBytes)
	}
	if !ok || err != nil {
		return transcript.Item{}, false
	}
	if item.Epoch != out.epoch {
		out.epoch = item.Epoch
		out.screen, out.pending, out.text, out.truncated = screen.New(log.SizeAt(item.Offset)), nil, nil, true
	}
	return item, true
}

// print draws p, and notes the end of the command if that is in it.
func (out *runOutput) print(p []byte) {
	out.pending = append(out.pending, p...)
	mark := []byte(";" + out.name + "\x1b\\")
	if end := bytes.Index(out.pending, mark); end >= 0 {
		const begin = "\x1b]133;D;"
		if at := bytes.LastIndex(out.pending[:end], []byte(begin)); at >= 0 {
			if code, err := strconv.Atoi(string(out.pending[at+len(begin) : end])); err == nil {
				out.draw(out.pending[:at])
				out.code, out.done = code, true
				return
			}
		}
	}
	if n := len(out.pending) - maxMarkBytes; n > 0 {
		out.draw(out.pending[:n])
		out.pending = append(out.pending[:0], out.pending[n:]...)
	}
}

func (out *runOutput) draw(p []byte) {
	out.screen.Write(nil, nil, p)
	out.text = out.screen.TakeHistory(out.text)
	if len(out.text) > 2*maxRunOutput {
		out.text = append(out.text[:0], lastLines(out.text, maxRunOutput)...)
		out.truncated = true
	}
}

// result returns what there is.
func (out *runOutput) result() RunResult {
	if !out.done {
		out.draw(out.pending)
		out.pending = nil
	}
	text := out.screen.AppendPlain(out.text, protocol.MaxKeyframeHistory) // above the screen: the beginning of a line
	if len(out.text) == 0 || !out.truncated {
		text = out.withoutCommand(text)
	}
	if len(text) > maxRunOutput {
		text, out.truncated = lastLines(text, maxRunOutput), true
	}
	return RunResult{Output: string(text), ExitCode: out.code, Truncated: out.truncated}
}

// withoutCommand returns text without the lines of the command as it was typed
// and what is before them, a prompt. They come within the first lines unless
// something has cleared the screen.
func (out *runOutput) withoutCommand(text []byte) []byte {
	text = bytes.TrimLeft(text, "\n")
	lines := 0
	for at, c := range text {
		if c == '\n' {
			lines++
		}
		if lines == maxPromptLines {
			break
		}
		if n := out.shown(text[at:]); n > 0 {
			_, rest, _ := bytes.Cut(text[at+n:], []byte("\n"))
			return rest
		}
	}
	return text
}

// shown returns how many bytes of text the command takes with which text begins;
// 0 when it doesn't. How line editors break lines and write unusual characters
// differs, so only the others are compared.
func (out *runOutput) shown(text []byte) (n int) {
	for _, r := range out.command {
		if unicode.IsSpace(r) {
			continue
		}
		next, size := nextShown(text[n:])
		switch {
		case next == '*' || next == r: // asterisks stand for what is secret
		case r < utf8.RuneSelf:
			return 0
		default:
			if next == '<' { // its number, in brackets
				size += bytes.IndexByte(text[n+size:], '>') + 1
			} else if next < utf8.RuneSelf {
				size = 0 // it was joined with the one before
			}
		}
		n += size
	}
	return n
}

// nextShown returns the first character of text that is no space, and the
// number of bytes up to its end; 0 at the end of text.
func nextShown(text []byte) (r rune, n int) {
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if n += size; !unicode.IsSpace(r) {
			return r, n
		}
	}
	return 0, n
}
