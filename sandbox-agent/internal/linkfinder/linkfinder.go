// Package linkfinder finds the web addresses that a program prints, and whether it
// asks people to open them. It is pure.
package linkfinder

import (
	"slices"
	"time"
)

const (
	// HintWait is how long an address waits for a hint, and for its own end, once
	// nothing more of it comes.
	HintWait = 200 * time.Millisecond

	// maxPending bounds the addresses that wait for a hint; the oldest waits no more.
	maxPending = 32
	// maxSeen bounds the addresses that are known not to be new.
	maxSeen = 256
	// burst addresses are told at once, and later one each refill. Those with a hint
	// have an allowance of their own: nobody hides a login behind a list of links.
	burst  = 16
	refill = time.Second
)

// A Link is an address that a program has printed, as people may open it.
type Link struct {
	URL      string // normalized
	AutoOpen bool   // the program asks for it to be opened
}

// A Finder reads what a program prints. Its zero value is ready.
type Finder struct {
	strip stripper
	hints hints
	scan  scanner

	pending  []pending
	seen     []string // the oldest first
	plain    allowance
	hinted   allowance
	dropped  uint64
	told     string // what was told of the address that is being read
	grownAt  time.Time
	original time.Time // when the first of output came; allowances count from it
}

// A pending address waits for its hint.
type pending struct {
	url string
	by  time.Time
}

// Write reads output that comes at now.
func (f *Finder) Write(p []byte, now time.Time) {
	for len(p) > 0 {
		if f.strip.plain() && f.scan.phase == outside {
			if n := textBefore(p); n > 0 { // nearly all that is ever printed
				f.hints.read(p[:n])
				p = p[n:]
				continue
			}
		}
		b := p[0]
		p = p[1:]
		c, ok := f.strip.next(b)
		if !ok {
			continue
		}
		if c == afterCR { // the return was none of a line's end
			f.char(lineBreak, now)
			if c, ok = f.strip.again(b); !ok {
				continue
			}
		}
		f.char(c, now)
	}
}

// textBefore returns how many bytes of p are text before the last character of a
// scheme, or before a control.
func textBefore(p []byte) int {
	for i, b := range p {
		if b < ' ' || b == 0x7f || b == '/' {
			return i
		}
	}
	return len(p)
}

// char reads the next character.
func (f *Finder) char(c byte, now time.Time) {
	f.hints.next(c)
	grew, whole := f.scan.next(c, f.hints.scheme())
	for _, url := range whole {
		f.found(url, now)
	}
	if grew {
		f.grownAt = now
	}
}

// found notes an address that is read to its end.
func (f *Finder) found(raw []byte, now time.Time) {
	f.told = ""
	url, ok := Normalize(string(raw))
	if !ok || slices.Contains(f.seen, url) || slices.ContainsFunc(f.pending, func(p pending) bool { return p.url == url }) {
		return
	}
	if len(f.pending) == maxPending {
		f.pending[0].by = time.Time{}
		f.pending = f.pending[1:]
		f.dropped++
	}
	f.pending = append(f.pending, pending{url, now.Add(HintWait)})
}

// Due returns when [Finder.Take] may have something; false if not before more is
// written.
func (f *Finder) Due() (at time.Time, ok bool) {
	for _, p := range f.pending {
		if f.hints.near() {
			p.by = time.Time{} // at once
		}
		if !ok || p.by.Before(at) {
			at, ok = p.by, true
		}
	}
	if raw := f.scan.unfinished(); len(raw) > 0 && string(raw) != f.told {
		if by := f.grownAt.Add(HintWait); !ok || by.Before(at) {
			at, ok = by, true
		}
	}
	return at, ok
}

// Take returns the addresses that are new at now, each once.
func (f *Finder) Take(now time.Time) (links []Link) {
	if raw := f.scan.unfinished(); len(raw) > 0 && string(raw) != f.told && !now.Before(f.grownAt.Add(HintWait)) {
		text := string(raw)
		f.found(raw, now.Add(-HintWait))
		f.told = text
	}
	near := f.hints.near()
	f.pending = slices.DeleteFunc(f.pending, func(p pending) bool {
		if !near && now.Before(p.by) {
			return false
		}
		links = f.tell(links, Link{p.url, near}, now)
		return true
	})
	return links
}

// tell appends a new link, as far as the allowance goes.
func (f *Finder) tell(links []Link, link Link, now time.Time) []Link {
	if f.original.IsZero() {
		f.original = now
	}
	from := &f.plain
	if link.AutoOpen {
		from = &f.hinted
	}
	if !from.spend(now.Sub(f.original)) {
		f.dropped++
		return links
	}
	if len(f.seen) == maxSeen {
		f.seen = slices.Delete(f.seen, 0, 1)
	}
	f.seen = append(f.seen, link.URL)
	return append(links, link)
}

// Flush returns what [Finder.Take] would after a long wait: nothing more comes.
func (f *Finder) Flush(now time.Time) []Link {
	if raw := f.scan.unfinished(); len(raw) > 0 && string(raw) != f.told {
		f.found(raw, now)
		f.told = string(raw)
	}
	for i := range f.pending {
		f.pending[i].by = now
	}
	return f.Take(now)
}

// Reset forgets what was read, but not which addresses were found: what comes next
// is no continuation of it.
func (f *Finder) Reset() {
	f.strip, f.hints, f.scan, f.told = stripper{}, hints{}, scanner{}, ""
}

// Dropped returns how many addresses weren't told, because there were too many.
func (f *Finder) Dropped() uint64 { return f.dropped }

// An allowance is how many addresses may be told.
type allowance struct {
	spent time.Duration // when as many as were told would have been due
}

// spend reports whether one more may be told after so long.
func (a *allowance) spend(after time.Duration) bool {
	a.spent = max(a.spent, after)
	if a.spent >= after+burst*refill {
		return false
	}
	a.spent += refill
	return true
}
