package terminal

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// epochEvery is the least time between two epochs that begin because a secret
// was drawn on the screen out of order. Meanwhile the terminal is not read.
const epochEvery = time.Second / 4

// beginAnewIfDue begins a new epoch if one is due and not too soon, and returns
// how long that must wait. The caller holds view.mu.
func (t *Terminal) beginAnewIfDue(now time.Time) time.Duration {
	v := &t.view
	if !v.display.Due() {
		return arbiter.NoDeadline
	}
	if wait := v.anew.Add(epochEvery).Sub(now); wait > 0 && !t.hasEnded() {
		return wait
	}
	v.anew = now
	t.beginAnew()
	return arbiter.NoDeadline
}

// beginAnew ends the epoch: what the log holds is dropped, in memory and on
// disk, and a new one begins with the present screen, which is a keyframe's
// bytes. Everybody goes on there, and what is recorded is discarded. The caller
// holds view.mu.
func (t *Terminal) beginAnew() {
	first := t.view.display.Replace()
	t.view.taken = time.Time{} // a keyframe may be had at once
	t.recordings.mu.Lock()     // so that nothing of the new epoch is recorded before
	t.arbiter.BeginEpoch(first)
	if r := t.recordings.running; r != nil {
		r.until = t.transcript.Head()
		r.forget(nil)
	}
	t.recordings.mu.Unlock()
	if t.view.display.Found() > 1 {
		return // one that is drawn may be drawn often
	}
	t.log.Info("a secret was found in what the terminal had printed: its log begins anew", "epoch", t.transcript.Epoch())
}

// setSecrets has the secrets of set masked in all that the terminal prints from
// now on, and drops what it shows and holds if one of them is in it, or one of
// partial. The caller runs search afterwards.
func (t *Terminal) setSecrets(set *redact.Set, partial ...*redact.Set) {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	found := t.view.display.Use(set, partial...)
	t.arbiter.UseSecrets(set, t.shown())
	if found || t.view.display.Due() { // also what is found by looking at the screen doesn't wait
		t.beginAnew()
	}
}

// search drops what the log holds, in memory and on disk, if one of the secrets
// of sets is in it, and has the recording that runs looked through. Spilled
// output that is dropped is gone when it returns.
func (t *Terminal) search(sets ...*redact.Set) {
	epoch, to := t.transcript.Place()
	found := slices.ContainsFunc(sets, func(set *redact.Set) bool { return t.transcript.Holds(set, epoch, to) })
	if found {
		t.dropFound(epoch, sets)
		sets = nil // the recording may hold what it recorded just now
	}
	t.recordings.forget(sets)
	t.transcript.DropSpilled()
}

// dropFound begins a new epoch after one in which secrets of sets were found,
// unless another one has done so.
func (t *Terminal) dropFound(epoch protocol.Epoch, sets []*redact.Set) {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	if t.transcript.Epoch() != epoch {
		return
	}
	for _, set := range sets {
		t.view.display.Mask(set)
	}
	t.beginAnew()
}
