package terminal

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
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
	info    protocol.PTYInfo // but for size, recording and end
	dev     device
	proc    process
	log     *slog.Logger
	life    life

	spilled *spill.File // what the window no longer holds, nil: nothing is kept

	mu sync.Mutex
	// Guarded by mu.
	output      *bytelog.Log
	printed     time.Time // when output was last appended
	lease       *lease.Register
	attachments map[*Attachment]struct{}
	input       inputQueue
	size        sizeLimiter
	keyframes   keyframer
	flow        flow
	following   map[*follower]struct{}
	recorder    *recorder // nil: none
	ended       time.Time // zero while the program runs
}

// sinks are where a terminal's output goes beside its log. Either may be nil.
type sinks struct {
	tape  *recording.Recording // from its first byte
	spill *spill.Store
}

// newTerminal returns a Terminal that reads dev. The caller must run keep.
func newTerminal(session protocol.SessionID, info protocol.PTYInfo, dev device, proc process, to sinks, log *slog.Logger) *Terminal {
	t := &Terminal{
		session: session, info: info, dev: dev, proc: proc, log: log,
		life: life{
			changed: make(chan struct{}, 1),
			closing: latch{c: make(chan struct{})},
			killing: latch{c: make(chan struct{})},
			gone:    make(chan struct{}),
		},
		output:      bytelog.New(newEpoch(), protocol.LogWindowBytes),
		lease:       lease.New(),
		attachments: make(map[*Attachment]struct{}),
		following:   make(map[*follower]struct{}),
		input:       newInputQueue(),
		keyframes:   keyframer{grid: screen.New(info.Cols, info.Rows)},
		flow:        flow{proceed: make(chan struct{}, 1)},
	}
	t.output.Resize(info.Cols, info.Rows)
	t.mu.Lock()
	defer t.mu.Unlock()
	if to.tape != nil {
		t.recordTo(to.tape)
	}
	if to.spill != nil {
		t.spillTo(to.spill.Create(string(info.ID), t.output.Epoch()))
	}
	t.life.reader.Go(t.read) // finish waits for it
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
	info := t.info
	info.Cols, info.Rows = t.output.SizeAt(t.output.Head())
	info.Recording = t.recordingID()
	if exited, ok := t.output.Exited(); ok {
		info.Exited = &exited
	}
	return info
}

func (t *Terminal) endedAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (t *Terminal) hasEnded() bool { return !t.endedAt().IsZero() }
