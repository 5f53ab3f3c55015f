package mux

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// minPiece is a data frame's size in bytes where nothing is known of the
	// lane's pace, and on lanes with keystrokes.
	minPiece = protocol.MaxStreamWrite
	// maxPiece bounds one data frame in bytes. Nothing else in the session can
	// overtake a frame.
	maxPiece = 64 << 10
	// pieceTime is how long a large frame may hold up what else is in its session.
	pieceTime = 10 * time.Millisecond
)

// A piecing says how large a stream's next data frame is. Each costs some changes
// of goroutines, so a fast lane gets large ones.
type piecing struct {
	bulk bool // its session may be held up for pieceTime
	size int
}

func newPiecing() piecing { return piecing{size: minPiece} }

// took notes how long a frame of n bytes took to be sent, the wait for the peer's
// window included.
func (p *piecing) took(n int, d time.Duration) {
	switch {
	case !p.bulk || n < p.size:
	case d < pieceTime/2:
		p.size = min(2*p.size, maxPiece)
	case d > pieceTime:
		p.size = max(p.size/2, minPiece)
	}
}
