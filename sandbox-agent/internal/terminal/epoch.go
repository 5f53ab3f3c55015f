package terminal

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// epochEvery is the least time between two epochs that begin because a secret
// was drawn on the screen out of order. Meanwhile the terminal is not read.
const epochEvery = time.Second / 4

// beginAnewIfDue begins a new epoch if one is due and not too soon, and returns
// how long that must wait. It is called with mu held.
func (t *Terminal) beginAnewIfDue(now time.Time) time.Duration {
	m := &t.mask
	if !m.due {
		return noDeadline
	}
	if wait := m.last.Add(epochEvery).Sub(now); wait > 0 && t.ended.IsZero() {
		return wait
	}
	m.last = now
	t.beginAnew()
	if r := t.recorder; r != nil {
		r.forget(nil)
	}
	return noDeadline
}

// beginAnew ends the epoch: what the log holds is dropped, in memory and on
// disk, and a new one begins with the present screen, which is a keyframe's
// bytes. Everybody goes on there. It is called with mu held.
func (t *Terminal) beginAnew() {
	k, old := &t.keyframes, t.output
	cols, rows := old.SizeAt(old.Head())
	t.output = bytelog.New(newEpoch(), protocol.LogWindowBytes)
	t.output.Resize(cols, rows)
	// The screen becomes that of who has only these bytes. What the present one
	// holds back comes behind them.
	grid := screen.New(cols, rows)
	first, _ := grid.Write(nil, nil, k.grid.Flush(k.draw(wishHistory)))
	grid.TakeTangled()
	t.output.Append(first)
	if exited, ok := old.Exited(); ok {
		t.output.Exit(exited.Code, exited.Signal)
	}
	k.grid = grid
	k.moved()
	k.taken = time.Time{} // a keyframe may be had at once
	t.mask.due = false
	t.spillAnew()
	for a := range t.attachments {
		a.cutOff()
	}
	if r := t.recorder; r != nil {
		r.cursor = bytelog.Cursor{}
		r.until = t.output.Head()
	}
	t.wakeAll()
	t.letGo(time.Now())
	t.poke() // for those who wait for a keyframe
	if t.mask.found > 1 {
		return // one that is drawn may be drawn often
	}
	t.log.Info("a secret was found in what the terminal had printed: its log begins anew", "epoch", t.output.Epoch())
}

// cutOff has the attachment begin in the new epoch. It is called with
// terminal.mu held.
func (a *Attachment) cutOff() {
	if a.ended {
		return
	}
	a.cut, a.cursor = true, bytelog.Cursor{}
	if a.sent == 0 {
		a.putOff()
	} else { // its pieces can't be parted; nobody will look at it
		blank := make([]byte, len(a.keyframe.bytes))
		a.keyframe = &keyframe{at: a.keyframe.at, history: a.keyframe.history, bytes: blank}
	}
	a.notify()
}

// setSecrets has the secrets of set masked in all that the terminal prints from
// now on, and drops what it shows and holds if one of them is in it, or one of
// veiled. The caller runs search afterwards.
func (t *Terminal) setSecrets(set *redact.Set, veiled ...*redact.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.remaskTurn()
	if t.use(set, veiled...) || t.mask.due { // also what is found by looking at the screen doesn't wait
		t.beginAnew()
		if r := t.recorder; r != nil {
			r.forget(nil)
		}
	}
}

// search drops what the log holds, in memory and on disk, if one of the secrets
// of sets is in it, and has the recording that runs looked through. Spilled
// output that is dropped is gone when it returns.
func (t *Terminal) search(sets ...*redact.Set) {
	t.mu.Lock()
	epoch, to := t.output.Epoch(), t.output.Head()
	t.mu.Unlock()
	found := slices.ContainsFunc(sets, func(set *redact.Set) bool { return t.holds(set, epoch, to) })
	t.mu.Lock()
	if found && t.output.Epoch() == epoch {
		for _, set := range sets {
			t.keyframes.mask(set)
		}
		t.beginAnew()
	}
	if r := t.recorder; r != nil {
		if found { // it may have recorded that just now
			sets = nil
		}
		r.forget(sets)
	}
	t.mu.Unlock()
	t.dropSpilled()
}

// holds reports whether the log of epoch holds a secret of set before the place
// to. Of one that another epoch has followed it doesn't matter.
func (t *Terminal) holds(set *redact.Set, epoch protocol.Epoch, to uint64) bool {
	if set.Empty() {
		return false
	}
	for {
		part, _, err := t.Read(protocol.ReadParams{Epoch: epoch, To: to})
		if err != nil {
			return false
		}
		found, err := part.holds(set)
		if !errors.Is(err, errSlid) {
			return found
		}
	}
}

// holds reports whether the rest of r holds a secret of set.
func (r *Reading) holds(set *redact.Set) (bool, error) {
	stream, buf := set.NewStream(), []byte(nil)
	for stream.Matches() == 0 {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if data, ok := m.(protocol.Data); ok {
			buf = stream.Write(buf[:0], data.Bytes)
		}
	}
	return true, nil
}

// spillAnew has the new log go to a file of its own. The old one is closed by
// dropSpilled, and in any case before the new one is written. It is called with
// mu held.
func (t *Terminal) spillAnew() {
	s := t.spiller
	if s == nil {
		return
	}
	t.stale = append(t.stale, t.spilled)
	t.spilled = t.site.spill.Create(string(t.info.ID), t.output.Epoch())
	s.cursor = bytelog.Cursor{}
}

// dropSpilled removes the files of earlier epochs.
func (t *Terminal) dropSpilled() {
	t.mu.Lock()
	stale := t.stale
	t.stale = nil
	t.mu.Unlock()
	closeSpilled(t, stale)
}

func closeSpilled(t *Terminal, files []*spill.File) {
	for _, file := range files {
		if err := file.Close(); err != nil {
			t.log.Warn("spilled output can't be removed", "error", err)
		}
	}
}
