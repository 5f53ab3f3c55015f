package terminal

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

// A Terminal is one PTY, running or ended. It is safe for concurrent use.
//
// Its mutex owns the lease, the input queue and what relays are told, and input
// is written with it held. So a change of control is a clean cut: once it is
// announced, not one byte of the former holder reaches the program. Output is
// parsed and masked under the display's lock instead, see doc.go.
type Terminal struct {
	// Static after construction.
	session    protocol.SessionID
	info       protocol.PTYInfo // but for size, recording, agent and end
	own        *program
	display    *display
	transcript *transcript.Transcript
	site       site
	log        *slog.Logger
	life       life
	typing     chan struct{} // 1 element: somebody types for a tool
	running    chan struct{} // 1 element: a command is waited for

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
	ended       time.Time // zero while the program runs; written with display.mu held, too
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
	leased   func(protocol.Lease) // called with the terminal's mutex held; must not wait
}

// newTerminal returns a Terminal with own. The caller must run keep.
func newTerminal(session protocol.SessionID, info protocol.PTYInfo, own *program, at site, log *slog.Logger) *Terminal {
	t := &Terminal{
		session: session, info: info, own: own, site: at, log: log,
		life: life{
			changed: make(chan struct{}, 1),
			closing: latch{c: make(chan struct{})},
			killing: latch{c: make(chan struct{})},
			gone:    make(chan struct{}),
		},
		typing:      make(chan struct{}, 1),
		running:     make(chan struct{}, 1),
		stage:       stage{front: own},
		control:     control{lease: lease.New()},
		attachments: make(map[*Attachment]struct{}),
		input:       newInputQueue(),
	}
	t.transcript = transcript.New(info.ID, info.Cols, info.Rows, at.spill, log)
	t.display = newDisplay(t.transcript, &own.out, at.counts, log)
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
	if with := t.shared(); with != protocol.ShareNone {
		info.Shared = with
	}
	info.Exited = t.transcript.Exited()
	return info
}

// shownInfo returns info as it may be seen. The caller holds mu.
func (t *Terminal) shownInfo() protocol.PTYInfo {
	info := t.info
	info.Command = withoutSecrets(t.secrets, info.Command)
	return info
}

// command returns what a recording shows as the command.
func (t *Terminal) command() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shownInfo().Command
}

func (t *Terminal) endedAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (t *Terminal) hasEnded() bool { return !t.endedAt().IsZero() }
