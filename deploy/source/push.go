package source

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/deploy/source/internal/cookiefile"
	"github.com/fairlead/fairlead/deploy/source/internal/sending"
	"github.com/fairlead/fairlead/protocol/op"
)

// maxListed bounds the hosts and refusals that are listed for people.
const maxListed = 50

func declarePush(c *program.Command) {
	var once, watch, dry bool
	var w whose
	c.Describe(`Sends the cookies of the sites that you have named, all of them each time: what you
have signed out of here, or taken off the list, leaves the sandbox's browser, too.

With --watch it goes on, and sends again half a second after something has changed,
at most every two seconds. A browser writes its file up to 30 s after a sign-in.`)
	c.Bool(&once, "once", false, "send once (the default)")
	c.Bool(&watch, "watch", false, "send, and again after each change, until interrupted")
	c.Bool(&dry, "dry-run", false, "send nothing, and say what would be sent")
	w.declare(c)
	command(c, func(ctx context.Context, r *run) error {
		p := &pusher{run: r, whose: w}
		switch {
		case dry && (once || watch), once && watch:
			return misused("--once, --watch and --dry-run: one of them")
		case dry:
			return r.dryRun(ctx, w)
		case watch:
			return p.watch(ctx)
		}
		return p.push(ctx)
	})
}

// dryRun says what would be sent.
func (r *run) dryRun(ctx context.Context, w whose) error {
	chosen, err := r.selected(ctx, w)
	if err != nil {
		return err
	}
	hosts := chosen.hosts()
	if r.asJSON {
		r.encode(map[string]any{
			"dry_run": true, "cookies": len(chosen.set.Cookies), "hosts": hosts, "dropped": total(chosen.set.Dropped),
			"left_out": lines(chosen.leftOut()), "warnings": lines(chosen.warnings(time.Now())), "browser": chosen.profile.String(),
		})
		return nil
	}
	r.aside("%s of %s would be sent, from %s.", plural(len(chosen.set.Cookies), "cookie"), plural(len(hosts), "host"), chosen.profile)
	r.list(hosts)
	if n := total(chosen.set.Dropped); n > 0 {
		r.aside("%s of %s stay here: these sites aren't on your list.", plural(n, "cookie"), plural(len(chosen.set.Dropped), "host"))
	}
	r.asides("left out: ", chosen.leftOut())
	r.asides("note: ", chosen.warnings(time.Now()))
	return nil
}

// A pusher pushes, once or again and again.
type pusher struct {
	*run
	whose whose
	sent  [sha256.Size]byte // what the last push had, and by which key; zero: there was none
}

// watch pushes until ctx ends.
func (p *pusher) watch(ctx context.Context) error {
	s, err := p.dir.Source()
	if err != nil {
		return err
	}
	profile, err := p.whose.find(s)
	if err != nil {
		return err
	}
	changes, err := sending.Changes(ctx, profile.Cookies, p.dir.PolicyPath())
	if err != nil {
		return err
	}
	p.aside("Watching %s. Ctrl-C ends it.", profile)
	err = sending.Follow(ctx, changes, p.push, func(err error, next time.Duration) {
		if p.asJSON {
			p.encode(map[string]any{"at": time.Now().UTC(), "error": body(err), "retry_seconds": int(next.Seconds() + 0.5)})
			return
		}
		p.aside("%s  %v; again in %s", time.Now().Format(time.TimeOnly), err, next.Round(time.Second))
	})
	if ctx.Err() != nil {
		return nil // that is how a watch ends
	}
	return err
}

// push reads what there is, and sends it. What was sent last isn't sent again by a
// watch. Whoever reads first sends first, of all that share the folder.
func (p *pusher) push(ctx context.Context) error {
	unlock, err := p.dir.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := p.dir.Source()
	if err != nil {
		return err
	}
	key, err := p.key(s)
	if err != nil {
		return err
	}
	if s.Sink.URL == "" {
		return errNoAddress
	}
	chosen, err := p.selected(ctx, p.whose)
	if errors.Is(err, cookiefile.ErrBusy) {
		return sending.Later(err)
	}
	if err != nil {
		return err
	}
	state, err := p.dir.State()
	if err != nil {
		return err
	}
	mark, err := fingerprint(s.Sink.URL, chosen)
	switch {
	case err != nil:
		return err
	case mark == p.sent:
		return nil
	case len(chosen.set.Cookies) == 0 && state.Clean():
		p.sent = mark
		p.say(map[string]any{"at": time.Now().UTC(), "cookies": 0, "left_out": lines(chosen.leftOut())}, "%s", p.nothing(chosen))
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	// The number is written first: one that a crash has lost could be used twice. From
	// here on nobody knows what the sandbox has, until it answers.
	state.Sequence, state.Unanswered = max(state.Sequence+1, time.Now().UnixMilli()), true
	if err := p.dir.PutState(state); err != nil {
		return err
	}
	p.sent = [sha256.Size]byte{}
	sender := sending.Sender{URL: s.Sink.URL, Hostname: host, Key: key, HTTP: sending.Client()}
	answer, err := sender.Send(ctx, state.Sequence, chosen.set.Cookies, chosen.set.Whole())
	if err != nil {
		return err
	}
	p.sent, state.Unanswered = mark, false
	state.Last = &config.Push{
		At: time.Now().UTC().Truncate(time.Second), Cookies: len(chosen.set.Cookies), Written: answer.Written,
		Dropped: answer.Dropped, Refused: len(answer.Refused), Removed: answer.Removed,
	}
	p.told(chosen, answer)
	return p.dir.PutState(state)
}

// fingerprint tells two sets of cookies apart. When a cookie was last used doesn't
// count: nobody sees it there.
func fingerprint(address string, chosen selection) (mark [sha256.Size]byte, err error) {
	hash := sha256.New()
	fmt.Fprintln(hash, address, chosen.set.Whole())
	enc := json.NewEncoder(hash)
	for _, c := range chosen.set.Cookies {
		c.LastAccess = 0
		if err := enc.Encode(c); err != nil {
			return mark, err
		}
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// nothing says why there is nothing to send.
func (p *pusher) nothing(chosen selection) string {
	if file, err := p.dir.Policy(); err == nil && file.Allows() && len(file.Domains) == 0 {
		return "Nothing to send: no site is named yet (fairlead-source accounts on github.com)."
	}
	text := "Nothing to send: " + chosen.profile.String() + " has no cookies of the sites that you have named."
	for _, line := range chosen.leftOut() {
		text += "\nleft out: " + line
	}
	return text
}

// told says what came of a push.
func (p *pusher) told(chosen selection, answer op.SyncAnswer) {
	now := time.Now()
	if p.asJSON {
		p.encode(map[string]any{
			"at": now.UTC(), "cookies": len(chosen.set.Cookies), "left_out": lines(chosen.leftOut()), "warnings": lines(chosen.warnings(now)), "sandbox": answer,
		})
		return
	}
	text := fmt.Sprintf("%s  sent %s: %d written", now.Format(time.TimeOnly), plural(len(chosen.set.Cookies), "cookie"), answer.Written)
	for _, part := range []struct {
		n    int
		what string
	}{{answer.Dropped, "dropped by the sandbox's policy"}, {len(answer.Refused), "refused"}, {answer.Removed, "removed"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	p.aside("%s", text)
	for i, refused := range answer.Refused {
		if i == maxListed {
			p.aside("refused: and %d more", len(answer.Refused)-i)
			break
		}
		p.aside("refused: %s of %s: %s", refused.Name, refused.HostKey, refused.Reason)
	}
	p.asides("left out: ", chosen.leftOut())
	p.asides("note: ", chosen.warnings(now))
}

func (r *run) asides(prefix string, all []string) {
	for _, line := range all {
		r.aside("%s%s", prefix, line)
	}
}

// list lists hosts with their counts.
func (r *run) list(hosts map[string]int) {
	for i, host := range slices.SortedFunc(maps.Keys(hosts), func(a, b string) int { return strings.Compare(strings.Trim(a, "."), strings.Trim(b, ".")) }) {
		if i == maxListed {
			r.aside("  and %s more", plural(len(hosts)-i, "host"))
			return
		}
		r.aside("  %5d  %s", hosts[host], host)
	}
}

func total(counts map[string]int) (n int) {
	for _, one := range counts {
		n += one
	}
	return n
}

// lines is an empty list in JSON where there are none.
func lines(all []string) []string { return append([]string{}, all...) }
