// Package shell runs a command at the prompt of a terminal's shell, as far as bash
// and zsh help with it: it says whether the shell waits for one, what to type, and
// what the command has printed.
package shell

import (
	"bytes"
	"crypto/rand"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
)

const (
	// MaxOutput bounds the output of a command in bytes, and MaxCommand the command.
	MaxOutput  = 256 << 10
	MaxCommand = 16 << 10
)

// A Result is what became of a command.
type Result struct {
	Output    string // plain text, without secrets; the end of it where it is longer than MaxOutput
	ExitCode  int    // as the shell tells it: 128 + n for one that a signal n ended
	Truncated bool   // something before Output is missing
}

// A Command is one for a shell to run.
type Command struct {
	name string // by which the shell tells of it
	text string
}

// NewCommand returns the command text. It fails with KindInvalid for one that is empty or has controls but for tabs and line feeds,
// and with KindTooLarge beyond MaxCommand.
func NewCommand(text string) (Command, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return Command{}, protocol.Errorf(protocol.KindInvalid, "no command")
	case len(text) > MaxCommand:
		return Command{}, protocol.Errorf(protocol.KindTooLarge, "a command of over %d bytes", MaxCommand)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return Command{}, protocol.Errorf(protocol.KindInvalid, "controls in the command")
	}
	return Command{name: rand.Text(), text: text}, nil
}

// ErrNoPaste is told to who has a command of several lines for a shell that takes
// no pastes now.
var ErrNoPaste = protocol.Errorf(protocol.KindInvalid, "the shell takes no command of several lines, or with tabs")

// Announce has the shell of user tell of the command that it is given next, and
// returns what to type for it. begun says that its line may have been begun, and paste
// that it takes pastes. It fails with [ErrNoPaste], and with KindUnavailable when
// the shell can't be told.
func (c Command) Announce(user account.Account, begun, paste bool) (text []byte, err error) {
	typed := c.text
	if strings.ContainsAny(typed, "\n\t") {
		if !paste {
			return nil, ErrNoPaste
		}
		typed = "\x1b[200~" + typed + "\x1b[201~"
	}
	if begun {
		typed = "\x01\x0b" + typed // to the beginning, and the rest goes
	}
	if err := user.WritePrivate(account.RunFile, []byte(c.name+"\n")); err != nil {
		return nil, protocol.Fault(protocol.KindUnavailable, err)
	}
	return []byte(typed + "\r"), nil
}

// status returns the exit status of the command in the shell of user, if it has
// ended.
func (c Command) status(user account.Account) (code int, ended bool) {
	note, _, err := user.ReadNote(account.RanFile)
	rest, found := strings.CutPrefix(note, c.name+" ")
	if err != nil || !found {
		return 0, false
	}
	code, err = strconv.Atoi(strings.TrimSpace(rest))
	return code, err == nil
}

// LastLines returns the end of text, of n bytes at most, from the beginning of a
// line, or of a character where the last line is longer.
func LastLines(text []byte, n int) []byte {
	if len(text) <= n {
		return text
	}
	tail := text[len(text)-n:]
	if text[len(text)-n-1] == '\n' {
		return tail
	}
	if i := bytes.IndexByte(tail, '\n'); i >= 0 && i+1 < len(tail) {
		return tail[i+1:]
	}
	for !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return tail
}
