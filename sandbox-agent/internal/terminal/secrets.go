package terminal

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
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
	values  []string      // of set
	former  []string      // that were masked before, newest last: at most maxFormerBytes
	partial []*redact.Set // values as they read where others were masked, see redact.Partly
	stop    func()        // ends the masking of recordings; nil: none began
	free    *time.Timer   // for freeMemory; nil: there was nothing to free yet

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
	h.mu.Unlock()
	ts := h.all()
	for _, t := range ts {
		t.setSecrets(h.secrets.with(sets[0], t.hidden), sets[1:]...)
	}
	if h.config.Recordings != nil {
		h.config.Recordings.SetSecrets(sets...)
	}
	for _, t := range ts {
		t.search(sets...)
	}
	h.secrets.maskRecordings(h.config.Recordings, h.log)
}

// knownSecrets returns the present ones.
func (h *Host) knownSecrets() *redact.Set {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secrets.set
}

// with returns set, which is values, with what one terminal hides beside it. What
// can't be masked isn't hidden: it is no secret. The caller holds changing.
func (s *secrets) with(set *redact.Set, hidden []string) *redact.Set {
	if len(hidden) == 0 {
		return set
	}
	all, err := redact.Compile(slices.Concat(s.values, hidden))
	if err != nil {
		return set
	}
	return all
}

// atStart is with for a terminal that is about to start.
func (s *secrets) atStart(set *redact.Set, hidden []string) *redact.Set {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.with(set, hidden)
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
	if set := h.secrets.with(h.knownSecrets(), t.hidden); set != t.view.secrets() {
		t.setSecrets(set, h.secrets.partial...)
		t.search(append([]*redact.Set{set}, h.secrets.partial...)...)
	}
}

// maskRecordings masks all ended recordings of store, in the background. A nil
// store has none. The caller holds changing.
func (s *secrets) maskRecordings(store *recording.Store, log *slog.Logger) {
	s.stopMasking()
	if store == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.masking.Go(func() { // stopMasking waits for it
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
			log.Error("recordings can't be masked, and not be read until they are", "error", err)
			again.Reset(maskAgain)
		}
	})
}

// stopMasking ends the masking of recordings. The caller holds changing.
func (s *secrets) stopMasking() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.masking.Wait()
	s.stop = nil
}

// close ends what goes on in the background.
func (s *secrets) close() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.stopMasking()
	if s.free != nil {
		s.free.Stop()
	}
}
