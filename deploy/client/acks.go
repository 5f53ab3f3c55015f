package client

import (
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// quiet is how long after the last output all of it is acknowledged. While more
// comes, an acknowledgement waits for half of what may be owed, and so stands
// for many chunks.
const quiet = 4 * SweepEvery

// acks decides what one socket acknowledges, and when. It is pure.
type acks struct {
	said     uint64    // the offset that was acknowledged last
	heard    time.Time // when output came last
	keyframe bool      // one is complete, which is acknowledged at once
}

// due reports whether everything before position is to be acknowledged at once.
func (a *acks) due(position uint64) bool {
	return a.keyframe || position-a.said >= protocol.AckBytes/2
}

// overdue reports whether it is to be acknowledged at now although it is little.
func (a *acks) overdue(position uint64, now time.Time) bool {
	return position != a.said && now.Sub(a.heard) >= quiet
}

// appendAck appends the acknowledgement of position, which is said now.
func (a *acks) appendAck(dst []byte, position uint64) []byte {
	a.said, a.keyframe = position, false
	dst = append(dst, `{"type":"`+protocol.ClientAck+`","offset":`...)
	return append(strconv.AppendUint(dst, position, 10), '}')
}
