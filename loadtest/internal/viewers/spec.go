// Package viewers is a kind of generator: many viewers of terminals in one
// process, which check every byte and time every chunk.
package viewers

import (
	"cmp"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/protocol"
)

// Kind is the name under which [New] is registered.
const Kind = "viewers"

// Orders to the worker, with their arguments and answers.
const (
	OrderJoin   = "join"   // Join → Joined
	OrderArm    = "arm"    // Arm → nothing
	OrderFinish = "finish" // Finish → Tally
	OrderResume = "resume" // Resume → Resumed
	OrderCounts = "counts" // nothing → Counts
	OrderLeave  = "leave"  // nothing → nothing
)

// A Spec says who watches what.
type Spec struct {
	// Tokens are of people, who share the viewers of the session at the relays
	// (origins). Not used with URL.
	Tokens  []string           `json:"tokens"`
	Session protocol.SessionID `json:"session"`
	Relays  []string           `json:"relays"`
	// PTYs are watched by Viewers each.
	PTYs    []protocol.PTYID `json:"ptys"`
	Viewers int              `json:"viewers"`
	// URL is a WebSocket without tickets, as a baseline's, in place of all
	// terminals.
	URL string `json:"url,omitempty"`

	OwnGrants bool `json:"own_grants,omitempty"` // each viewer has a grant of its own

	Exact   bool `json:"exact,omitempty"`
	Rate    int  `json:"rate,omitempty"`    // bytes per second that each reads; 0: no limit
	Receive int  `json:"receive,omitempty"` // the kernel's receive buffer in bytes; 0: its own choice
	Slow    bool `json:"slow,omitempty"`    // may be skipped: that is counted, not lost

	// NoSum and Gather make viewers cheaper: every byte is compared, without a
	// SHA-256, and sockets are looked at only so often ([eventloop.NewGathering]).
	NoSum  bool          `json:"no_sum,omitempty"`
	Gather time.Duration `json:"gather,omitempty"`

	Peer string `json:"peer,omitempty"` // whose protocol URL speaks, by its name; empty: that of a baseline

	// Prefix is put before the names of what is recorded.
	Prefix string `json:"prefix,omitempty"`
	// Join is the name of the latency of joining and, with _failures, of the
	// count of those who didn't; default: the prefix and "join".
	Join string `json:"join,omitempty"`
}

// Join has the viewers come.
type Join struct {
	// Rate is how many come per second, from Start on; 0: all at once, as many
	// at a time as Together.
	Rate     float64       `json:"rate"`
	Start    time.Time     `json:"start"`
	Together int           `json:"together"`
	Part     float64       `json:"part,omitempty"` // of the viewers that come; 0: all
	As       string        `json:"as,omitempty"`   // name of the latency; default: the Spec's
	Within   time.Duration `json:"within"`         // from now; who isn't in by then has failed
}

// Joined says how that went.
type Joined struct {
	In     int    `json:"in"`
	Failed int    `json:"failed"`
	Why    string `json:"why,omitempty"` // of one that failed

	Last time.Time `json:"last"` // when the last one had its whole screen
}

// Add adds o.
func (j *Joined) Add(o Joined) {
	j.In += o.In
	j.Failed += o.Failed
	j.Why = cmp.Or(o.Why, j.Why)
	if o.Last.After(j.Last) {
		j.Last = o.Last
	}
}

// Arm begins a check: the next output of each terminal is its stream.
type Arm struct {
	Streams []pattern.Spec `json:"streams"` // by terminal; one for all with URL
	// Base is the offset of chunk 0 in the log of each terminal. A viewer that
	// comes later expects what is at its own position. Empty: all viewers are
	// there.
	Base []uint64 `json:"base,omitempty"`
	// Late viewers are checked from attached to the end only.
	Late bool `json:"late,omitempty"`
	// Delivery is the name of the latency of chunks; default: the prefix
	// and "delivery".
	Delivery string `json:"delivery,omitempty"`

	latency *measure.Latency // of that name
}

// Finish ends the check when all viewers have everything, or at Deadline, and
// waits for Settle longer, in which nothing may come.
type Finish struct {
	Deadline time.Time     `json:"deadline"`
	Settle   time.Duration `json:"settle"`
}

// A Tally is what the viewers got.
type Tally struct {
	Viewers    int   `json:"viewers"`
	Clean      int   `json:"clean"`      // got every byte, and the same SHA-256
	Incomplete int   `json:"incomplete"` // lack the end
	Silent     int   `json:"silent"`     // got nothing at all
	Chunks     int64 `json:"chunks"`
	Bytes      int64 `json:"bytes"`
	Lost       int64 `json:"lost"`
	Skipped    int64 `json:"skipped"` // announced; of slow viewers only, else in Lost
	Duplicate  int64 `json:"duplicate"`
	Corrupt    int64 `json:"corrupt"`
	// Worst tells about one viewer that isn't clean.
	Worst string `json:"worst,omitempty"`
}

// Add adds o.
func (t *Tally) Add(o Tally) {
	t.Viewers += o.Viewers
	t.Clean += o.Clean
	t.Incomplete += o.Incomplete
	t.Silent += o.Silent
	t.Chunks += o.Chunks
	t.Bytes += o.Bytes
	t.Lost += o.Lost
	t.Skipped += o.Skipped
	t.Duplicate += o.Duplicate
	t.Corrupt += o.Corrupt
	if t.Worst == "" {
		t.Worst = o.Worst
	}
}

// Resume waits until those whose sockets ended since At get output again.
type Resume struct {
	At     time.Time     `json:"at"`
	Within time.Duration `json:"within"`
}

// Resumed says how many that were.
type Resumed struct {
	Affected  int `json:"affected"`
	Back      int `json:"back"`
	Untouched int `json:"untouched"`
}

// Add adds o.
func (r *Resumed) Add(o Resumed) {
	r.Affected += o.Affected
	r.Back += o.Back
	r.Untouched += o.Untouched
}

// Counts are sums over all viewers.
type Counts struct {
	Connected int   `json:"connected"`
	Sockets   int   `json:"sockets"`
	Resyncs   int   `json:"resyncs"`
	Gaps      int   `json:"gaps"`
	Bytes     int64 `json:"bytes"`
}

// Add adds o.
func (c *Counts) Add(o Counts) {
	c.Connected += o.Connected
	c.Sockets += o.Sockets
	c.Resyncs += o.Resyncs
	c.Gaps += o.Gaps
	c.Bytes += o.Bytes
}
