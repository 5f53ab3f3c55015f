package terminal

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// A Terminal is one PTY, running or ended. It is safe for concurrent use.
//
// Its mutex owns the log, the screen, the lease and the input queue together,
// and input is written with it held. So a change of control is a clean cut:
// once it is announced, not one byte of the former holder reaches the program.
// And the screen is always that of the whole log.
type Terminal struct {
	// Static after construction.
	session protocol.SessionID
	info    protocol.PTYInfo // but for size, recording, agent and end
	own     *program
	site    site
	log     *slog.Logger
	life    life
	typing  chan struct{} // 1 element: somebody types for a tool
	running chan struct{} // 1 element: a command is waited for

	mu sync.Mutex
	// Guarded by mu.
	stage       stage
	output      *bytelog.Log
	printed     time.Time // when output was last appended
	control     control
	sharing     sharing
	attachments map[*Attachment]struct{}
	input       inputQueue
	size        sizeLimiter
	keyframes   keyframer
	flow        flow
	mask        masker
	following   map[*follower]struct{}
	hooks       hooks
	spilled     *spill.File   // what the window no longer holds; nil: nothing is kept
	spiller     *spiller      // that writes it
	stale       []*spill.File // of earlier epochs, to be removed
	recorder    *recorder     // nil: none
	ended       time.Time     // zero while the program runs
}

// A site is what a terminal's host provides for it. Any of it may be nil.
type site struct {
	counts   *counts
	launched launch               // how its own program was started
	created  protocol.PTYCreate   // as it was asked for
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
		output:      bytelog.New(newEpoch(), protocol.LogWindowBytes),
		control:     control{lease: lease.New()},
		attachments: make(map[*Attachment]struct{}),
		following:   make(map[*follower]struct{}),
		input:       newInputQueue(),
		keyframes:   keyframer{grid: screen.New(info.Cols, info.Rows)},
	}
	t.output.Resize(info.Cols, info.Rows)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.use(at.secrets)
	t.site.secrets = nil // they change
	if at.tape != nil {
		t.recordTo(at.tape)
	}
	if at.spill != nil {
		t.spillTo(at.spill.Create(string(info.ID), t.output.Epoch()))
	}
	t.say(at.notice)
	own.reader.Go(func() { t.read(own) }) // finish waits for it
	return t
}

func newEpoch() protocol.Epoch {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return protocol.Epoch(binary.BigEndian.Uint64(b[:]))
}

// Info returns the terminal as a list shows it.
func (t *Terminal) Info() protocol.PTYInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.shownInfo()
	info.Cols, info.Rows = t.output.SizeAt(t.output.Head())
	info.Recording = t.recordingID()
	info.Agent = t.stage.report()
	if with := t.shared(); with != protocol.ShareNone {
		info.Shared = with
	}
	if exited, ok := t.output.Exited(); ok {
		info.Exited = &exited
	}
	return info
}

// shownInfo returns info as it may be seen. It is called with mu held.
func (t *Terminal) shownInfo() protocol.PTYInfo {
	info := t.info
	info.Command = withoutSecrets(t.mask.set, info.Command)
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
