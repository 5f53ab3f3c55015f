package terminal

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// A view is a terminal's display and its lock, which is the outermost of the
// terminal's locks, see doc.go. It is held while a chunk of output of at most
// readBytes is parsed and masked, while a keyframe is drawn, and while all that
// the screen holds is masked because secrets are new.
type view struct {
	mu sync.Mutex
	// Guarded by mu.
	display *display.Display
	taken   time.Time // when the last keyframes were taken
	anew    time.Time // when an epoch last began because it was due
}

// secrets returns those that are masked.
func (v *view) secrets() *redact.Set {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.display.Secrets()
}

// plain returns the screen and as many rows above it as plain text, without
// secrets.
func (v *view) plain(history int) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.display.Plain(history)
}
