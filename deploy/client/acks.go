package client

import (
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// quiet is how long after the last output all of it is acknowledged. While more
// comes, acknowledgements wait until half the limit is owed, so that each
// stands for many chunks.
const quiet = 4 * SweepEvery

// acks decides when a socket acknowledges output. It is pure.
type acks struct {
	said     uint64    // the last acknowledged offset
	heard    time.Time // when output last came
	keyframe bool      // one is complete; it is acknowledged at once
}

// due reports whether output before position must be acknowledged at once.
func (a *acks) due(position uint64) bool {
	return a.keyframe || position-a.said >= protocol.AckBytes/2
}

// overdue reports whether a little output must be acknowledged now.
func (a *acks) overdue(position uint64, now time.Time) bool {
	return position != a.said && now.Sub(a.heard) >= quiet
}

// appendAck appends the acknowledgement of position and notes it as sent.
func (a *acks) appendAck(dst []byte, position uint64) []byte {
	a.said, a.keyframe = position, false
	dst = append(dst, `{"type":"`+protocol.ClientAck+`","offset":`...)
	return append(strconv.AppendUint(dst, position, 10), '}')
}
