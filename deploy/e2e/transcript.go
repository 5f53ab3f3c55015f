package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"

	"github.com/fairlead/fairlead/protocol"
)

// A Source knows what a terminal printed.
type Source interface {
	// Mismatch returns the index of the first byte of p that was not printed
	// at offset and after, or −1.
	Mismatch(offset uint64, p []byte) int
}

// A Segment is output without a hole.
type Segment struct {
	Epoch    protocol.Epoch
	From, To uint64
}

// A Skip is output that the viewer was told it would not get.
type Skip struct {
	Epoch    protocol.Epoch
	From, To uint64
	How      string // the message that said so: attached's mode, or resync
}

// A Shown is a keyframe that a viewer got.
type Shown struct {
	Before     uint64 // where the viewer was
	Offset     uint64 // what the keyframe stands for
	Cols, Rows int
	Joined     bool // it came with attached, to somebody without a position
	Bytes      []byte
}

// maxShown is how many keyframes a transcript remembers.
const maxShown = 64

// A Transcript is what one viewer was sent, over any number of sockets.
type Transcript struct {
	// Static after construction.
	source Source // may be nil
	keep   int    // how many bytes of output to keep
	sum    hash.Hash

	started  bool
	epoch    protocol.Epoch
	position uint64 // of the next byte
	bytes    uint64
	segments []Segment
	skips    []Skip
	shown    []Shown
	kept     []byte
	awaits   *Shown // a keyframe that was announced, without its bytes
	size     int    // of that one
	faults   []error
}

// NewTranscript returns an empty transcript that compares what comes with
// source, and keeps up to keep bytes.
func NewTranscript(source Source, keep int) *Transcript {
	return &Transcript{source: source, keep: keep, sum: sha256.New()}
}

const maxFaults = 8

func (t *Transcript) fault(format string, args ...any) {
	if len(t.faults) < maxFaults {
		t.faults = append(t.faults, fmt.Errorf(format, args...))
	}
}

// attached notes that a socket continues at m.Offset. since is what was asked
// for, nil for nothing.
func (t *Transcript) attached(m protocol.Attached, since *protocol.Position) {
	t.awaits = nil
	before := t.position
	switch {
	case since == nil:
		if m.Mode == protocol.ModeResume && m.Offset != 0 {
			t.fault("attached without since resumes at %d", m.Offset)
		}
		if m.Mode == protocol.ModeKeyframe && m.KeyframeBytes == 0 {
			t.fault("attached by a keyframe of no bytes at %d", m.Offset)
		}
		before = m.Offset
	case m.Mode == protocol.ModeResume:
		if m.Epoch != since.Epoch || m.Offset != since.Offset {
			t.fault("asked for %v, resumes at %v:%d", *since, m.Epoch, m.Offset)
		}
	case m.Mode == protocol.ModeGap || m.Mode == protocol.ModeKeyframe:
		if t.started {
			t.skip(m.Epoch, m.Offset, m.Mode)
		}
	default:
		t.fault("attached with mode %q", m.Mode)
	}
	t.began(m.Epoch, m.Offset)
	t.announced(Shown{Before: before, Offset: m.Offset, Cols: m.Cols, Rows: m.Rows, Joined: since == nil}, m.KeyframeBytes)
}

// resync notes that the viewer skips.
func (t *Transcript) resync(m protocol.Resync) {
	t.awaits = nil
	before := t.position
	t.skip(m.Epoch, m.Offset, protocol.ServerResync)
	t.began(m.Epoch, m.Offset)
	t.announced(Shown{Before: before, Offset: m.Offset, Cols: m.Cols, Rows: m.Rows}, m.KeyframeBytes)
}

func (t *Transcript) skip(epoch protocol.Epoch, to uint64, how string) {
	if epoch == t.epoch && to < t.position {
		t.fault("%s goes back from %d to %d", how, t.position, to)
	}
	t.skips = append(t.skips, Skip{t.epoch, t.position, to, how})
}

func (t *Transcript) began(epoch protocol.Epoch, offset uint64) {
	if !t.started || epoch != t.epoch || offset != t.position {
		t.segments = append(t.segments, Segment{epoch, offset, offset})
	}
	t.started, t.epoch, t.position = true, epoch, offset
}

func (t *Transcript) announced(s Shown, size int) {
	if size > 0 {
		t.awaits, t.size = &s, size
	}
}

// binary notes a binary frame and reports whether it was a keyframe.
func (t *Transcript) binary(p []byte) (keyframe bool) {
	if t.awaits != nil {
		s := t.awaits
		t.awaits = nil
		if len(p) != t.size {
			t.fault("a keyframe of %d bytes, %d were announced", len(p), t.size)
		}
		s.Bytes = bytes.Clone(p)
		if len(t.shown) < maxShown {
			t.shown = append(t.shown, *s)
		}
		return true
	}
	if !t.started {
		t.fault("%d bytes before attached", len(p))
		return false
	}
	if t.source != nil {
		if i := t.source.Mismatch(t.position, p); i >= 0 {
			t.fault("byte %d was not printed: %.40q", t.position+uint64(i), p[i:])
		}
	}
	t.sum.Write(p)
	if room := t.keep - len(t.kept); room > 0 {
		t.kept = append(t.kept, p[:min(room, len(p))]...)
	}
	t.position += uint64(len(p))
	t.bytes += uint64(len(p))
	t.segments[len(t.segments)-1].To = t.position
	return false
}

// First returns the offset of the first byte.
func (t *Transcript) First() uint64 {
	if len(t.segments) == 0 {
		return 0
	}
	return t.segments[0].From
}

// Position returns the offset of the next byte.
func (t *Transcript) Position() protocol.Position {
	return protocol.Position{Epoch: t.epoch, Offset: t.position}
}

// Segments, Skips and Keyframes return what came, in order; of keyframes no
// more than the first 64.
func (t *Transcript) Segments() []Segment { return t.segments }
func (t *Transcript) Skips() []Skip       { return t.skips }
func (t *Transcript) Keyframes() []Shown  { return t.shown }

// Kept returns the output that was kept.
func (t *Transcript) Kept() []byte { return t.kept }

// Verify reports whether what came is what was printed, but for the skips that
// were announced: no byte is different, missing or there twice.
func (t *Transcript) Verify() error {
	err := errors.Join(t.faults...)
	for i := 1; i < len(t.segments); i++ {
		from, to := t.segments[i-1], t.segments[i]
		told := false
		for _, s := range t.skips {
			told = told || s.Epoch == from.Epoch && s.From == from.To && s.To == to.From
		}
		if !told {
			err = errors.Join(err, fmt.Errorf("nothing announced the skip from %v:%d to %v:%d", from.Epoch, from.To, to.Epoch, to.From))
		}
	}
	return err
}

// VerifyExact is Verify for a viewer that must not have been skipped: the
// digest of all it got is the one that the source has.
func (t *Transcript) VerifyExact(digest func(from, to uint64) [sha256.Size]byte) error {
	err := t.Verify()
	if len(t.skips) > 0 || len(t.segments) > 1 {
		return errors.Join(err, fmt.Errorf("%d skips of a viewer that wanted every byte, the first %+v", len(t.skips), t.skips[:min(1, len(t.skips))]))
	}
	if got := [sha256.Size]byte(t.sum.Sum(nil)); got != digest(t.First(), t.position) {
		err = errors.Join(err, fmt.Errorf("another SHA-256 of [%d, %d)", t.First(), t.position))
	}
	return err
}
