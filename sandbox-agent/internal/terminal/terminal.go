package terminal

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

// A Terminal is one PTY, running or ended. It is safe for concurrent use.
//
// It owns the life of the programs and joins those who own the rest: the arbiter
// who may type, the display the screen, the transcript the log. doc.go says what
// ties them together.
type Terminal struct {
	// Static after construction.
	session    protocol.SessionID
	id         protocol.PTYID
	launched   pty.Launch   // how its own program was started
	created    op.PTYCreate // as it was asked for
	hidden     []string     // masked beside the host's secrets
	log        *slog.Logger
	counts     *counts
	own        *program
	arbiter    *arbiter.Arbiter
	transcript *transcript.Transcript
	running    chan struct{} // 1 element: a command is waited for
	endSeen    atomic.Bool   // somebody was told of its end
	endDue     atomic.Bool   // whoever attaches from now on shows it to somebody

	view       view
	recordings recordings
	addresses  addressSearch
	life       life
}

// A program runs on a PTY. A terminal has one of its own, and perhaps a coding
// agent's in front of it.
type program struct {
	// Static after construction.
	*arbiter.Program
	pending *pty.Pending // nil: it has started with its terminal
	out     *display.Feed
	reader  sync.WaitGroup // of its output
}

func newProgram(dev pty.Device, proc pty.Child) *program {
	return &program{Program: arbiter.NewProgram(dev, proc), out: new(display.Feed)}
}

// A site is what a terminal's host provides for it. Any of it may be nil.
type site struct {
	counts   *counts
	launched pty.Launch
	created  op.PTYCreate
	hidden   []string
	notice   string               // shown before anything that its program prints
	tape     *recording.Recording // of it from its first byte
	spill    *spill.Store
	secrets  *redact.Set     // at the start
	rules    arbiter.Options // but for what is known of the terminal alone
}

// newPending returns a program that starts with the first byte that is typed.
func newPending(p *pty.Pending) *program {
	own := newProgram(p, p)
	own.pending = p
	return own
}

// newTerminal returns a Terminal with own. The caller must run keep.
func newTerminal(session protocol.SessionID, info protocol.PTYInfo, own *program, at site, log *slog.Logger) *Terminal {
	if at.counts == nil {
		at.counts = new(counts)
	}
	t := &Terminal{
		session: session, id: info.ID, launched: at.launched, created: at.created, hidden: at.hidden, log: log, counts: at.counts, own: own,
		transcript: transcript.New(info.ID, info.Cols, info.Rows, at.spill, log),
		running:    make(chan struct{}, 1),
		life: life{
			closing: latch{c: make(chan struct{})},
			killing: latch{c: make(chan struct{})},
			gone:    make(chan struct{}),
		},
	}
	o := at.rules
	o.Session, o.Info, o.Transcript, o.Counts, o.Log = session, info, t.transcript, &at.counts.arbiters, log
	t.arbiter = arbiter.New(o, own.Program)
	t.view.display = display.New(t.transcript, screen.New(info.Cols, info.Rows), own.out, &at.counts.output, log)
	t.setSecrets(at.secrets)
	if at.tape != nil {
		t.recordTo(at.tape)
	}
	if at.spill != nil {
		t.life.followers.Go(t.transcript.Spill())
	}
	if at.created.Shell != nil {
		t.addresses.begin(t.transcript, t.arbiter.NoteAddress)
	}
	t.say(at.notice)
	own.reader.Go(func() { t.read(own) }) // finish waits for it
	return t
}

// Read opens the part of the log that p names, see [transcript.Transcript.Read].
func (t *Terminal) Read(p protocol.ReadParams) (*transcript.Reading, protocol.ReadOpened, error) {
	return t.transcript.Read(p)
}

// Info returns the terminal as a list shows it.
func (t *Terminal) Info() protocol.PTYInfo {
	info := t.arbiter.Info()
	info.Waiting = t.waits()
	return info
}

// noteDeserted notes that the terminal ends because nobody watches it any more.
func (t *Terminal) noteDeserted() {
	t.counts.deserted.Add(1)
	t.log.Info("terminal ends: nobody watches it any more")
}

// waits reports whether the terminal's program waits for its first byte.
func (t *Terminal) waits() bool { return t.own.pending != nil && t.own.pending.Waits() }

// EndSeen reports whether somebody has seen the terminal's end. If not, who asks is
// about to show it: then it is seen on a stream that is opened later.
func (t *Terminal) EndSeen() bool {
	t.endDue.Store(t.hasEnded())
	return t.endSeen.Load()
}

func (t *Terminal) hasEnded() bool { return !t.arbiter.EndedAt().IsZero() }
