package terminal

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/protocol/op"
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
	*arbiter

	view view

	// Static after construction.
	life    life
	typing  chan struct{} // 1 element: somebody types for a tool
	running chan struct{} // 1 element: a command is waited for
}

// An arbiter owns who may type into a terminal, what waits to be typed, and what
// relays are told. Input is written with its lock held. So a change of control is
// a clean cut: once it is announced, not one byte of the former holder reaches
// the program. Nothing is parsed, masked or drawn under that lock.
type arbiter struct {
	// Static after construction.
	session    protocol.SessionID
	info       protocol.PTYInfo // but for size, recording, agent and end
	own        *program
	transcript *transcript.Transcript
	site       site
	log        *slog.Logger
	changed    chan struct{}  // 1 element: keep should look at its deadlines
	writers    sync.WaitGroup // flush; only added to before the end

	mu sync.Mutex
	// Guarded by mu.
	stage       stage
	control     control
	sharing     sharing
	attachments map[*Attachment]struct{}
	input       inputQueue
	size        sizeLimiter
	flow        flow
	held        holding
	secrets     *redact.Set // of the display, for what is told beside the log
	hooks       hooks
	recorder    *recorder // nil: none
	ended       time.Time // zero while the program runs; written with view.mu held, too
}

func newArbiter(session protocol.SessionID, info protocol.PTYInfo, own *program, at site, log *slog.Logger) *arbiter {
	return &arbiter{
		session: session, info: info, own: own, site: at, log: log,
		transcript:  transcript.New(info.ID, info.Cols, info.Rows, at.spill, log),
		changed:     make(chan struct{}, 1),
		stage:       stage{front: own},
		control:     control{lease: lease.New()},
		attachments: make(map[*Attachment]struct{}),
		input:       newInputQueue(),
	}
}

// A site is what a terminal's host provides for it. Any of it may be nil.
type site struct {
	counts   *counts
	launched pty.Launch           // how its own program was started
	created  op.PTYCreate         // as it was asked for
	notice   string               // shown before anything that its program prints
	tape     *recording.Recording // of it from its first byte
	spill    *spill.Store
	secrets  *redact.Set          // at the start
	revoked  *jws.RevocationSet   // grants that are void
	leased   func(protocol.Lease) // called with arbiter.mu held; must not wait
}

// newTerminal returns a Terminal with own. The caller must run keep.
func newTerminal(session protocol.SessionID, info protocol.PTYInfo, own *program, at site, log *slog.Logger) *Terminal {
	if at.counts == nil {
		at.counts = newCounts()
	}
	t := &Terminal{
		arbiter: newArbiter(session, info, own, at, log),
		life: life{
			closing: latch{c: make(chan struct{})},
			killing: latch{c: make(chan struct{})},
			gone:    make(chan struct{}),
		},
		typing:  make(chan struct{}, 1),
		running: make(chan struct{}, 1),
	}
	t.view.display = display.New(t.transcript, screen.New(info.Cols, info.Rows), &own.out, &at.counts.output, log)
	t.setSecrets(at.secrets)
	t.site.secrets = nil // they change
	if at.tape != nil {
		t.recordTo(at.tape)
	}
	if at.spill != nil {
		t.life.followers.Go(t.transcript.Spill())
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
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.shownInfo()
	info.Cols, info.Rows = t.transcript.Size()
	info.Recording = t.recordingID()
	info.Agent = t.stage.report()
	if with := t.sharing.shared(); with != protocol.ShareNone {
		info.Shared = with
	}
	info.Exited = t.transcript.Exited()
	return info
}

// shownInfo returns info as it may be seen. The caller holds mu.
func (b *arbiter) shownInfo() protocol.PTYInfo {
	info := b.info
	info.Command = withoutSecrets(b.secrets, info.Command)
	return info
}

// command returns what a recording shows as the command.
func (b *arbiter) command() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shownInfo().Command
}

func (b *arbiter) endedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

func (b *arbiter) hasEnded() bool { return !b.endedAt().IsZero() }
