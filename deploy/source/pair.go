package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

func declarePair(c *program.Command) {
	var p pairing
	c.Describe(`Makes a key that only this computer and the sandbox have. What is sent then is what
you name: nothing at first, the sites of --site, or with --all every site that you
are signed in at.

Whoever may use the sandbox's browser, and every coding agent there, browses as you
at these sites.

With --source it pairs seed 004's own program, which waits for that on this computer
("pair" there shows an address and a code). Its key never comes here.`)
	c.Strings(&p.sites, "site", "send the cookies of this `site` (repeatable)")
	c.Bool(&p.all, "all", false, "send the cookies of every site")
	c.String(&p.name, "name", "", "`name` of this computer in the console (default: the host's)")
	c.Secret(&p.secret, "shared-secret", "a secret of at least 32 bytes that this computer and the sandbox use instead of a key of their own making")
	c.String(&p.source, "source", "", "`address` where another source program waits to be paired, such as http://127.0.0.1:9998/pair")
	c.String(&p.code, "code", "", "`code` that it shows")
	c.Bool(&p.accept, "accept-version-2", false, "with --source: take the later envelopes that its newer releases send")
	p.which.declare(c)
	command(c, func(ctx context.Context, r *run) error { return r.pair(ctx, &p) })
}

func (r *run) pair(ctx context.Context, p *pairing) error {
	if p.all && len(p.sites) > 0 {
		return misused("--all and --site: one of them")
	}
	if (p.source == "") != (p.code == "") || p.accept && p.source == "" || p.secret != "" && p.source != "" {
		return misused("--source goes with --code, --accept-version-2 with both, and --shared-secret-file with none of them")
	}
	if p.source != "" && (p.all || len(p.sites) > 0 || p.which != whose{}) {
		return misused("--source: what the other program sends is in its own files, so --all, --site, --browser, --profile and --cookie-file say nothing")
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	if p.name == "" {
		p.name = host
	}
	cp, who, err := r.login()
	if err != nil {
		return err
	}
	if p.source != "" {
		return r.pairOther(ctx, cp, who, p)
	}
	unlock, err := r.dir.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := r.dir.Pairing(); !errors.Is(err, config.ErrNotPaired) {
		if err != nil {
			return err
		}
		return errors.New("this computer is paired already: fairlead-source status, or unpair")
	}
	list, err := r.start(p)
	if err != nil { // before anything is made
		return err
	}
	var made protocol.SyncResult
	key := config.Key{Version: seal.Version, PairedAt: time.Now().UTC().Truncate(time.Second), AnnouncedAs: host}
	if p.secret != "" {
		result, err := cp.run(ctx, who.Session, op.KindSyncPair, &op.SyncPair{Step: op.SyncSecret, Name: p.name, SharedSecret: p.secret})
		if err != nil {
			return err
		}
		made = syncOf(result)
	} else if made, err = r.exchange(ctx, cp, who.Session, p.name, host, &key); err != nil {
		return err
	}
	if err := r.keep(p, list, who, made, key); err != nil {
		return errors.Join(err, cp.unpair(context.WithoutCancel(ctx), who.Session, made.Pairing))
	}
	r.told(list, made)
	return nil
}

// keep writes what a pairing has made, and the list with which it begins.
func (r *run) keep(p *pairing, list start, who config.Login, made protocol.SyncResult, key config.Key) error {
	if !list.stays { // what its owner has written beside the list stays, too
		if err := list.Write(r.dir.PolicyPath()); err != nil {
			return err
		}
	}
	s, err := r.dir.Source()
	if err != nil {
		return err
	}
	s.Sink.URL, s.Security.SharedSecret = made.URL, p.secret
	p.which.put(&s)
	if p.secret == "" {
		s.Peer.Hostname = key.Peer
		if err := r.dir.PutKey(key); err != nil {
			return err
		}
	}
	if err := r.dir.PutSource(s); err != nil {
		return err
	}
	return r.dir.PutPairing(config.Pairing{ID: made.Pairing, Session: who.Session, ControlPlane: who.ControlPlane, Fingerprint: made.Fingerprint, PairedAt: key.PairedAt})
}

// told says what was paired, and what that means.
func (r *run) told(list start, made protocol.SyncResult) {
	sites, others := list.List()
	named := plural(len(sites)+len(others), "site")
	warnings := []string{}
	if made.Warning != "" {
		warnings = append(warnings, made.Warning)
	}
	if !list.Allows() {
		but := ""
		if len(list.Domains) > 0 {
			but = ", but for " + named + " on the list"
		}
		warnings = append(warnings, "ALL your cookies will be sent, of every site you are signed in at"+but+`. Whoever may use the
sandbox's browser, and every agent there, is you at these sites. "accounts off" leaves a site out.`)
	}
	if r.asJSON {
		r.encode(map[string]any{"pairing": made.Pairing, "fingerprint": made.Fingerprint, "policy": list.Mode(), "domains": sites, "warnings": warnings})
		return
	}
	r.aside("Paired. Fingerprint %s: the console's \"Signed-in sites\" shows the same.", made.Fingerprint)
	r.asides("WARNING: ", warnings)
	if list.Allows() && len(list.Domains) == 0 {
		r.aside("Nothing is sent yet: name sites with fairlead-source accounts on github.com")
	} else if list.Allows() {
		r.aside("The cookies of %s will be sent: who uses the sandbox's browser is you there.", named)
	}
	r.aside("Next: fairlead-source push --watch")
}

func declareUnpair(c *program.Command) {
	var local bool
	c.Describe(`Ends the pairing: its address ends at once, its cookies leave the sandbox's browser,
and the key is deleted here. The sites that you have named, and the login, stay.`)
	c.Bool(&local, "local", false, "only forget it here, where the sandbox is gone")
	command(c, func(ctx context.Context, r *run) error { return r.unpair(ctx, local) })
}

func (r *run) unpair(ctx context.Context, local bool) error {
	unlock, err := r.dir.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	p, err := r.dir.Pairing()
	if err != nil {
		return err
	}
	if !local {
		cp, _, err := r.login()
		if err == nil {
			err = cp.unpair(ctx, p.Session, p.ID)
		}
		if err != nil && !gone(err) {
			return program.Hint(fmt.Errorf("the sandbox didn't end it: %w", err), "fairlead-source unpair --local forgets the key here; end the pairing in the console")
		}
	}
	if err := r.dir.Forget(); err != nil {
		return err
	}
	r.say(map[string]any{"unpaired": p.ID, "local": local}, "Unpaired.")
	return nil
}

// gone reports whether an error says that there is no such pairing any more.
func gone(err error) bool {
	said, ok := errors.AsType[*answered](err)
	return ok && said.status == 404
}
