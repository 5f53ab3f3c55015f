// Package jarfile puts the cookies of somebody's own browser into the database of a
// Chromium that doesn't run. A process with no more rights than that Chromium's user
// does it: a page that has taken Chromium over may have left anything there.
package jarfile

import (
	"cmp"
	"context"
	"slices"
	"syscall"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process/helper"
)

const (
	// DefaultPatience is how long a change may take: a start of Chromium waits for it.
	DefaultPatience = 3 * time.Second

	// maxCookies and maxBytes bound what a change sets: Chromium keeps no more than
	// 3,300 cookies.
	maxCookies, maxBytes = 5000, 16 << 20
	// maxIDs bounds the cookies that a change is about.
	maxIDs = 20_000
	// maxFile bounds the database, and what SQLite has beside it, in bytes.
	maxFile = 64 << 20

	maxMemory = 512 << 20 // bytes of memory of the process
	maxAnswer = 4 << 10   // bytes that it may print
)

// A Reason says why nothing was written. It repeats nothing of what was found.
type Reason string

// Error implements error.
func (r Reason) Error() string { return string(r) }

// Why nothing was written.
const (
	TooMuch Reason = "more than is written at once"
	NoFile  Reason = "the profile has no cookies yet"
	NotAs   Reason = "the profile's cookies aren't a file as Chromium makes it"
	Schema  Reason = "the profile's cookies have a form that isn't known"
	Damaged Reason = "the profile's cookies are damaged"
	Locked  Reason = "somebody uses the profile's cookies"
	Failed  Reason = "the profile's cookies couldn't be changed"
)

// A Writer changes databases. It is safe for concurrent use.
type Writer struct {
	Command  []string      // starts a process that calls [Serve]. Any user can run it
	Patience time.Duration // default DefaultPatience
}

// A Change is what is to be done.
type Change struct {
	// Set are cookies that were checked, see [seal.Cookie.Check]. What a database can't
	// hold of them is only taken out.
	Set    []seal.Cookie
	Remove []seal.CookieID
}

// A request is what the process is asked to do.
type request struct {
	Patience time.Duration
	Change   Change
}

// An answer is what it prints.
type answer struct {
	Written int
	Why     Reason
}

// Write changes the cookies of the profile, whose Chromium isn't running, in one step:
// on an error nothing has changed. The error is a [Reason] or the context's. user is
// Chromium's; nil: the agent's own. written counts what is in the file.
func (w Writer) Write(ctx context.Context, profile string, user *syscall.Credential, change Change) (written int, err error) {
	if err := change.bound(); err != nil {
		return 0, err
	}
	patience := cmp.Or(w.Patience, DefaultPatience)
	h := helper.Helper{Command: w.Command, Dir: profile, User: user, Patience: patience, MaxMemory: maxMemory, MaxAnswer: maxAnswer}
	var a answer
	err = h.Ask(ctx, request{patience, change}, &a)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil:
		return 0, Failed // what the process said may be of what it found
	case a.Why != "":
		return 0, known(a.Why)
	}
	return a.Written, nil
}

// bound fails for what would take too long.
func (c Change) bound() error {
	bytes := 0
	for _, k := range c.Set {
		bytes += len(k.HostKey) + len(k.Name) + len(k.Value) + len(k.Path)
	}
	if len(c.Set) > maxCookies || bytes > maxBytes || len(c.Set)+len(c.Remove) > maxIDs {
		return TooMuch
	}
	return nil
}

// IDs returns all that the change is about.
func (c Change) IDs() []seal.CookieID {
	ids := slices.Clone(c.Remove)
	for _, k := range c.Set {
		ids = append(ids, k.ID())
	}
	return ids
}

// SharedDomain says why Chromium won't take a cookie.
const SharedDomain = "a domain below which anybody may have a name"

// Foreseen says, by their index, of cookies to be set why Chromium won't take them at
// its next start, as far as that is known.
func (c Change) Foreseen() (refused map[int]string) {
	for i, k := range c.Set {
		if shared(k) {
			if refused == nil {
				refused = map[int]string{}
			}
			refused[i] = SharedDomain
		}
	}
	return refused
}

// known returns a reason of ours.
func known(why Reason) Reason {
	switch why {
	case NoFile, NotAs, Schema, Damaged, Locked:
		return why
	}
	return Failed
}

// shared reports whether a cookie is of a domain below which anybody may have a name,
// such as .co.uk. Chromium makes it a cookie of one host; a database would hold it.
func shared(c seal.Cookie) bool {
	if !c.Domain() {
		return false
	}
	suffix, _ := publicsuffix.PublicSuffix(c.Host())
	return suffix == c.Host()
}
