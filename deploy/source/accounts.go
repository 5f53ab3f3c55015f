package source

import (
	"context"
	"errors"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/sitepolicy"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
)

func declareAccounts(c *program.Command) {
	c.Describe(`Names the sites whose cookies are sent. The list is blocklist.yaml, of seed 004's
form: an allowlist names what is sent, a blocklist what isn't. The sandbox has one of
its own, which has the last word.`)
	c.Sub("on", "Send the cookies of a site and its subdomains", func(c *program.Command) { declareSwitch(c, true) })
	c.Sub("off", "Don't send them, and have the sandbox forget them", func(c *program.Command) { declareSwitch(c, false) })
	c.Sub("list", "Say which sites' cookies are sent", func(c *program.Command) {
		c.Describe(`Lists the sites of which both patterns are on the list, the site's own and that of all
below it, and then all other patterns. With --json the answer is {policy, domains,
patterns}; policy is sync-all, blocklist or allowlist.`)
		command(c, func(_ context.Context, r *run) error { return r.listAccounts() })
	})
}

func declareSwitch(c *program.Command, on bool) {
	var site string
	c.Describe(`SITE is a host such as github.com, or an address with it: scheme, port, path, dots and
*. are taken off. It means that host and all below it, so github.com is also
gist.github.com. Names with other letters than ASCII are written as xn--….

On an allowlist, "on" puts the site onto the list and "off" takes it away; on a
blocklist it is the other way round. What "off" names leaves the sandbox's browser
with the next push.`)
	c.Arg(&site, "SITE")
	command(c, func(ctx context.Context, r *run) error { return r.switchAccount(ctx, site, on) })
}

// switchAccount has a site pass or not.
func (r *run) switchAccount(ctx context.Context, text string, on bool) error {
	site, err := sitepolicy.Site(text)
	if err != nil {
		return err
	}
	unlock, err := r.dir.Lock(ctx) // two that change the list change it one after the other
	if err != nil {
		return err
	}
	defer unlock()
	file, err := r.dir.Policy()
	if err != nil {
		return err
	}
	changed := file.Set(site, on, "")
	before, _ := file.List()
	after, _ := changed.List()
	differs := strings.Join(before, " ") != strings.Join(after, " ") || len(file.Domains) != len(changed.Domains)
	if differs {
		if err := changed.Write(r.dir.PolicyPath()); err != nil {
			return err
		}
	}
	action, outcome := "off", "isn't sent"
	if on {
		action, outcome = "on", "is sent"
	}
	r.say(map[string]any{"action": action, "domain": site, "patterns": []string{site, "%." + site}, "changed": differs, "config_path": r.dir.PolicyPath()},
		"%s %s from the next push on.", site, outcome)
	if _, err := r.dir.Pairing(); errors.Is(err, config.ErrNotPaired) && on && !changed.Allows() {
		r.aside("But nothing is paired, and a pairing begins with an empty list: fairlead-source pair --site %s", site)
	}
	return nil
}

// listAccounts lists what passes.
func (r *run) listAccounts() error {
	file, err := r.dir.Policy()
	if err != nil {
		return err
	}
	sites, others := file.List()
	if r.asJSON {
		r.encode(map[string]any{"policy": file.Mode(), "domains": lines(sites), "patterns": lines(others)})
		return nil
	}
	switch file.Mode() {
	case "sync-all":
		r.aside("Every site's cookies are sent.")
	case "blocklist":
		r.aside("Every site's cookies are sent, but not those of:")
	case "allowlist":
		if len(file.Domains) == 0 {
			r.aside("No site's cookies are sent. Add one: fairlead-source accounts on github.com")
			return nil
		}
		r.aside("Only these sites' cookies are sent:")
	}
	for _, site := range sites {
		r.aside("  %s", site)
	}
	for _, pattern := range others {
		r.aside("  hosts like %s", pattern)
	}
	return nil
}
