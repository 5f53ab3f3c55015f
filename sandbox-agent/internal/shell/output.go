package shell

import (
	"bytes"
	"context"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
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

// An Output reads what a command prints and makes plain text of it: it draws all
// of the log from the prompt on, and takes the text from its screen. It is for one
// goroutine.
type Output struct {
	// Static after construction.
	*transcript.Follower
	log     *transcript.Transcript
	user    account.Account
	command Command

	epoch     protocol.Epoch
	screen    *screen.Screen
	pending   []byte // output not drawn yet: it may be the beginning of the mark
	text      []byte // of rows that left the top of the screen
	truncated bool
	code      int
	done      bool // the command has ended, with code
	exited    bool // the shell has
}

// NewOutput returns what reads the output of command, which the shell of user runs,
// from the end of log on, which begin is the screen of. Nothing may be printed meanwhile. The caller closes it.
func NewOutput(command Command, user account.Account, log *transcript.Transcript, begin *screen.Screen) *Output {
	out := &Output{Follower: log.Follow(log.End()), log: log, user: user, command: command, epoch: log.Epoch(), screen: begin}
	out.screen.TakeHistory(nil)
	out.screen.Write(nil, nil, []byte("\x1b[1J")) // of what was before, no trace
	return out
}

// Await reads until the command has ended, and returns its outcome. It fails with
// KindEnded when the shell has ended, and with KindUnavailable when ctx ends first:
// the command goes on then. Either way it returns what there is.
func (out *Output) Await(ctx context.Context) (Result, error) {
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
			if code, ended := out.command.status(out.user); ended {
				out.code, overdue = code, overdue+1
			}
		case <-ctx.Done():
			out.read()
			return out.result(), protocol.Errorf(protocol.KindUnavailable, "the command runs on: it was not waited for any longer")
		}
	}
}

// read takes what the log has, up to the end of the command.
func (out *Output) read() {
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
func (out *Output) step() (transcript.Item, bool) {
	log := out.log
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
func (out *Output) print(p []byte) {
	out.pending = append(out.pending, p...)
	mark := []byte(";" + out.command.name + "\x1b\\")
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

func (out *Output) draw(p []byte) {
	out.screen.Write(nil, nil, p)
	out.text = out.screen.TakeHistory(out.text)
	if len(out.text) > 2*MaxOutput {
		out.text = append(out.text[:0], LastLines(out.text, MaxOutput)...)
		out.truncated = true
	}
}

// result returns what there is.
func (out *Output) result() Result {
	if !out.done {
		out.draw(out.pending)
		out.pending = nil
	}
	text := out.screen.AppendPlain(out.text, protocol.MaxKeyframeHistory) // above the screen: the beginning of a line
	if len(out.text) == 0 || !out.truncated {
		text = out.withoutCommand(text)
	}
	if len(text) > MaxOutput {
		text, out.truncated = LastLines(text, MaxOutput), true
	}
	return Result{Output: string(text), ExitCode: out.code, Truncated: out.truncated}
}

// withoutCommand returns text without the lines of the command as it was typed
// and what is before them, a prompt. They come within the first lines unless
// something has cleared the screen.
func (out *Output) withoutCommand(text []byte) []byte {
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
func (out *Output) shown(text []byte) (n int) {
	for _, r := range out.command.text {
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
