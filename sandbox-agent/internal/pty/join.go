package pty

import (
	"sync/atomic"
	"time"
)

const (
	// joinFor is how long output may wait for more, under load, and joinAlone how
	// many reads aren't asked to after a silence of that many times as long.
	joinFor   = 2 * time.Millisecond
	joinAlone = 8
	// joinBytes is how much output is enough to be handed on at once: whoever
	// prints so much within joinFor isn't waited for.
	joinBytes = 16 << 10
	// joinRoom is how much output may come while a read waits: half of what the kernel
	// keeps of a terminal (measured: 15 to 20 KiB). With more the printer stands still.
	joinRoom = 8 << 10
	// fullRead is what the kernel hands out at once of a buffer that is full, behind
	// which more waits already.
	fullRead = 4095
)

// A joiner reads the output of a PTY. Each piece that is handed on costs whoever
// hears of it the same, however small it is: a lock here and there, a packet, a
// wake-up of the relay and one of each viewer. So under load, which is many small
// pieces one soon after the other, what comes within a moment is read together.
//
// The first pieces after a silence are not held up, nor is the first one behind
// something typed, which is its echo; nor is a flood, for which waiting would only
// have the kernel's small buffer stand full.
type joiner struct {
	from printer // static after construction

	typed atomic.Bool // something was, since the last read

	// Owned by Read.
	load load
	rest bool // there was no room for all that had waited
}

// A printer has output.
type printer interface {
	await(p []byte) (int, error) // waits for some
	more(p []byte) (int, error)  // takes what there is, perhaps nothing
}

// Read reads output. It waits for some, and under load for more.
func (j *joiner) Read(p []byte) (n int, err error) {
	n, err = j.from.await(p)
	if err != nil || j.typed.Swap(false) {
		return n, err
	}
	now := time.Now()
	wait := j.load.wait(now, n)
	if wait <= 0 || j.rest || n >= fullRead {
		j.rest = j.rest && n >= fullRead
		j.load.handed(now, n)
		return n, nil
	}
	time.Sleep(wait)
	j.rest = true
	for n < len(p) {
		// An error is there again at the next read.
		m, err := j.from.more(p[n:])
		if m == 0 || err != nil {
			j.rest = false
			break
		}
		n += m
	}
	j.load.handed(time.Now(), n)
	return n, nil
}

// A load says how much was read lately. Its zero value is silence.
type load struct {
	due time.Time // when all that was handed on would be, at one piece per joinFor

	// Since when the pieces have come too fast for that, and bytes in them.
	since time.Time
	bytes int
}

// wait returns how long n bytes that were read at now should wait for more; 0 when
// they shouldn't.
func (l *load) wait(now time.Time, n int) time.Duration {
	ahead := l.due.Sub(now)
	if ahead <= (joinAlone-1)*joinFor {
		return 0
	}
	if l.flood(now, n) {
		return 0
	}
	return min(ahead-(joinAlone-1)*joinFor, l.fills(now, n))
}

// fills returns how soon joinRoom comes, with n bytes more by now.
func (l *load) fills(now time.Time, n int) time.Duration {
	return time.Duration(joinRoom / float64(l.bytes+n) * float64(now.Sub(l.since)))
}

// flood reports whether, with n bytes more, as much comes as is enough.
func (l *load) flood(now time.Time, n int) bool {
	return float64(l.bytes+n)*joinFor.Seconds() >= joinBytes*now.Sub(l.since).Seconds()
}

// handed notes that n bytes were handed on at now.
func (l *load) handed(now time.Time, n int) {
	if !l.due.After(now) { // silence
		l.due, l.since, l.bytes = now, now, 0
	}
	if now.Sub(l.since) > 2*joinAlone*joinFor { // what was long ago doesn't count
		l.since, l.bytes = now.Add(-now.Sub(l.since)/2), l.bytes/2
	}
	l.due = l.due.Add(joinFor)
	// A flood isn't held up, and is no reason to hold up what comes behind it.
	if most := now.Add(joinAlone * joinFor); l.due.After(most) {
		l.due = most
	}
	l.bytes += n
}
