package terminal

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// maskAgain is how long to wait before ended recordings that could not be masked
// are tried again.
const maskAgain = time.Minute

// secrets is what a host's terminals must not show.
type secrets struct {
	changing sync.Mutex // held by SetSecrets

	set *redact.Set // guarded by Host.mu

	// Guarded by changing.
	values []string      // of set
	former []string      // that were masked before, newest last: at most maxFormerBytes
	veiled []*redact.Set // values as they read where others were masked, see redact.Partly
	stop   func()        // ends the masking of recordings; nil: none began
	free   *time.Timer   // for freeMemory; nil: there was nothing to free yet

	masking sync.WaitGroup // of recordings
}

// SetSecrets has the secrets of set, which are values, and no others masked in
// all that present and future terminals print. Values must not change any more.
// A terminal whose log holds one of them, in memory,
// on disk or on the screen, begins a new epoch. When SetSecrets returns nothing
// of that is there any more; what a running recording holds is discarded, if a
// secret is in it, before it can be read again. Ended recordings are masked in
// the background, as often as it takes, and not read before.
//
// A value that another one is a part of is also found where that was masked when
// it was printed.
func (h *Host) SetSecrets(set *redact.Set, values []string) {
	if set == nil {
		set = &redact.Set{}
	}
	h.secrets.changing.Lock()
	defer h.secrets.changing.Unlock()
	sets := append([]*redact.Set{set}, h.secrets.change(values)...)
	h.mu.Lock()
	h.secrets.set = set
	ts := make([]*Terminal, 0, len(h.listed))
	for _, t := range h.listed {
		ts = append(ts, t)
	}
	h.mu.Unlock()
	for _, t := range ts {
		t.setSecrets(sets[0], sets[1:]...)
	}
	if h.config.Recordings != nil {
		h.config.Recordings.SetSecrets(sets...)
	}
	for _, t := range ts {
		t.search(sets...)
	}
	h.maskRecordings()
}

// knownSecrets returns the present ones.
func (h *Host) knownSecrets() *redact.Set {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secrets.set
}

// withoutSecrets returns text as it may be seen.
func withoutSecrets(set *redact.Set, text string) string {
	if set.Empty() {
		return text
	}
	return string(set.Mask([]byte(text)))
}

// catchUp gives t, which began with the secrets of a while ago, those of now.
func (h *Host) catchUp(t *Terminal) {
	h.secrets.changing.Lock()
	defer h.secrets.changing.Unlock()
	t.mu.Lock()
	began := t.secrets
	t.mu.Unlock()
	if set := h.knownSecrets(); set != began {
		t.setSecrets(set, h.secrets.veiled...)
		t.search(append([]*redact.Set{set}, h.secrets.veiled...)...)
	}
}

// maskRecordings masks all ended recordings, in the background. The caller holds
// changing.
func (h *Host) maskRecordings() {
	h.stopMasking()
	store := h.config.Recordings
	if store == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	h.secrets.stop = stop
	h.secrets.masking.Go(func() { // stopMasking waits for it
		again := time.NewTimer(0)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			err := store.Mask(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			h.log.Error("recordings can't be masked, and not be read until they are", "error", err)
			again.Reset(maskAgain)
		}
	})
}

// stopMasking ends the masking of recordings. The caller holds changing.
func (h *Host) stopMasking() {
	if h.secrets.stop == nil {
		return
	}
	h.secrets.stop()
	h.secrets.masking.Wait()
	h.secrets.stop = nil
}
