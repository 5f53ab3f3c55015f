package terminal

import (
	"slices"
	"time"
)

// An ended terminal stays listed, so that a late viewer gets its output and its end:
// for keepEnded, and no more than maxEnded of them. One that goes on for a while
// without viewers has ended behind somebody's back, perhaps. It stays for as long
// as it would have gone on, at most keepUnseen, and there may be maxUnseen of them.
// What has ended longer ago goes where the logs of all hold more than
// maxEndedBytes.
const (
	keepEnded     = 10 * time.Minute
	maxEnded      = 16
	keepUnseen    = 30 * time.Minute
	maxUnseen     = 64
	maxEndedBytes = 64 << 20
)

// surplus returns those of the ended terminals that there is no room for.
func surplus(ended []*Terminal, now time.Time) (stale []*Terminal) {
	slices.SortFunc(ended, func(a, b *Terminal) int { return b.arbiter.EndedAt().Compare(a.arbiter.EndedAt()) })
	seen, unseen, bytes := 0, 0, 0
	for _, t := range ended { // the newest first
		keep, n, limit := keepEnded, &seen, maxEnded
		if after, _ := t.created.OnDetach.After(); after > 0 {
			keep, n, limit = min(max(after, keepEnded), keepUnseen), &unseen, maxUnseen
		}
		held := t.transcript.Held()
		if now.Sub(t.arbiter.EndedAt()) > keep || *n == limit || bytes+held > maxEndedBytes {
			stale = append(stale, t)
			continue
		}
		*n, bytes = *n+1, bytes+held
	}
	return stale
}
