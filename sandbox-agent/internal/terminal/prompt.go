package terminal

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// In our folder of a home, what shells and the agent tell each other about
// commands, see [startFiles].
const (
	promptFile = "prompt" // the shell that showed the last prompt, as its process id
	runFile    = "run"    // names the command to be waited for
	ranFile    = "ran"    // names the last one that has ended, and its exit status
)

const (
	// settledFor is how long a prompt must have been there: what was typed ahead
	// of it comes first. It must be longer where that may have been typed at the
	// prompt as well, in the same tick of the clock.
	settledFor = 20 * time.Millisecond
	// maxNoteBytes bounds what is read of such a file.
	maxNoteBytes = 256
)

// fileClock returns the time as files are given it, which is a little late.
func fileClock() time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return time.Now()
	}
	return time.Unix(now.Unix())
}

// A lineEditor is a device that can tell whether a shell's line editor reads it.
type lineEditor interface {
	// editing returns the process group that the terminal's keys act on, and
	// whether it gets them one by one.
	editing() (group int, byKey bool)
}

func (m *master) editing() (group int, byKey bool) {
	var mode *unix.Termios
	var err error
	control := m.raw.Control(func(fd uintptr) { mode, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) })
	if control != nil || err != nil {
		return 0, false
	}
	return m.foreground(), mode.Lflag&unix.ICANON == 0
}

var (
	errNoPrompts = protocol.Errorf(protocol.KindUnsupported, "no shell in the terminal tells when a command is done: "+
		"bash and zsh do, with the start files that its home began with")
	errNotAtPrompt = protocol.Errorf(protocol.KindConflict, "the shell is not at its prompt: something runs in the terminal")
	errTypedAt     = protocol.Errorf(protocol.KindConflict, "somebody has typed at the shell's prompt")
)

// atPrompt reports whether the shell in the terminal waits for a command, and
// there is none begun; begun says that the shell may have been given the
// beginning of one all the same, before it was at its prompt. It is called with
// mu held.
func (t *Terminal) atPrompt() (begun bool, err error) {
	a := t.stage.agent
	if t.stage.front != t.own {
		return false, protocol.Errorf(protocol.KindConflict, "%s is in front of the shell", a.name)
	}
	note, noted, err := readNote(t.site.launched.account, promptFile)
	pid, number := strconv.Atoi(strings.TrimSpace(note))
	if err != nil || number != nil || pid < 2 {
		return false, errNoPrompts
	}
	editor, ok := t.own.dev.(lineEditor)
	if !ok {
		return false, errNoPrompts
	}
	q, now := &t.input, fileClock()
	group, byKey := editor.editing()
	switch {
	case group != pid || !byKey || len(q.items) > 0:
		return false, errNotAtPrompt
	case q.last.After(noted):
		return false, errTypedAt
	case now.Sub(noted) < settledFor, q.last.Equal(noted) && now.Sub(noted) < 5*settledFor:
		return false, errNotAtPrompt
	}
	return !q.entered, nil
}

// readNote returns what is in a file of our folder of a's home, and when it was
// written. Its user may have put anything there.
func readNote(a account, name string) (string, time.Time, error) {
	home, err := os.OpenRoot(a.home)
	if err != nil {
		return "", time.Time{}, err
	}
	defer home.Close()
	f, err := home.OpenFile(filepath.Join(envDir, name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", time.Time{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", time.Time{}, err
	}
	if !st.Mode().IsRegular() {
		return "", time.Time{}, errors.New("not a file")
	}
	note, err := io.ReadAll(io.LimitReader(f, maxNoteBytes))
	return string(note), st.ModTime(), err
}
