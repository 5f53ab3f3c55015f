package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/deploy/source/internal/sending"
)

// Severities of a check.
const (
	fine    = "ok"
	warns   = "warn"
	fails   = "fail"
	informs = "info"
	skipped = "skipped"
)

// A check is one line of doctor.
type check struct {
	Name        string `json:"name"`
	Severity    string `json:"severity"`
	Detail      string `json:"detail"`
	Remediation string `json:"remediation,omitempty"`
}

func declareDoctor(c *program.Command) {
	var w whose
	c.Describe("Looks for what keeps it from working, and says what to do. It sends no cookie.")
	w.declare(c)
	command(c, func(ctx context.Context, r *run) error { return r.doctor(ctx, w) })
}

func (r *run) doctor(ctx context.Context, w whose) error {
	var all []check
	for _, look := range []func(context.Context) check{r.checkLogin, r.checkKey, r.checkAddress, r.checkPairing, r.checkPolicy, func(ctx context.Context) check { return r.checkBrowser(ctx, w) }} {
		all = append(all, look(ctx))
	}
	code := 0
	for _, c := range all {
		if c.Severity == fails {
			code = 1
		}
	}
	if r.asJSON {
		r.encode(map[string]any{"version": r.env.Revision, "exit_code": code, "checks": all})
	} else {
		for _, c := range all {
			r.aside("%-7s  %-8s  %s", c.Severity, c.Name, c.Detail)
			if c.Remediation != "" {
				r.aside("         %8s  -> %s", "", c.Remediation)
			}
		}
	}
	if code != 0 {
		return program.WithStatus(errTold, code)
	}
	return nil
}

func (r *run) checkLogin(ctx context.Context) check {
	cp, who, err := r.login()
	if err != nil {
		return check{"login", fails, err.Error(), "fairlead-source login https://your-control-plane"}
	}
	if _, err := cp.me(ctx); err != nil {
		return check{"login", fails, err.Error(), "fairlead-source login " + who.ControlPlane}
	}
	return check{"login", fine, who.User + ", session " + string(who.Session), ""}
}

func (r *run) checkKey(context.Context) check {
	s, err := r.dir.Source()
	if err == nil {
		_, err = r.key(s)
	}
	switch {
	case err != nil:
		return check{"key", fails, err.Error(), "fairlead-source pair --site github.com"}
	case s.Peer.Hostname == "":
		return check{"key", warns, "a shared secret: whoever has ever seen it can read what is sent", "fairlead-source unpair, then pair without --shared-secret-file"}
	}
	return check{"key", fine, r.dir.KeyPath(s.Peer.Hostname), ""}
}

// checkAddress asks the address for something that it doesn't do: that is no push.
func (r *run) checkAddress(ctx context.Context) check {
	s, err := r.dir.Source()
	if err != nil || s.Sink.URL == "" {
		return check{"address", skipped, "not paired", ""}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Sink.URL, nil)
	if err != nil {
		return check{"address", fails, "sink.url in source.yaml isn't an address", "fairlead-source unpair, then pair"}
	}
	resp, err := sending.Client().Do(req)
	if err != nil {
		return check{"address", fails, req.URL.Host + " can't be reached", "is this computer online, and the relay's address right?"}
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		return check{"address", fails, fmt.Sprintf("%s answers %s: no relay of fairlead is there", req.URL.Host, resp.Status), "fairlead-source unpair, then pair"}
	}
	return check{"address", fine, req.URL.Host, ""}
}

func (r *run) checkPairing(ctx context.Context) check {
	p, err := r.dir.Pairing()
	if err != nil {
		return check{"pairing", skipped, "not paired", ""}
	}
	there, err := r.there(ctx)
	switch {
	case err != nil:
		return check{"pairing", fails, err.Error(), ""}
	case there.Fingerprint != p.Fingerprint:
		return check{"pairing", fails, fmt.Sprintf("the sandbox has fingerprint %s, and here it is %s", there.Fingerprint, p.Fingerprint), "fairlead-source unpair, then pair"}
	}
	return check{"pairing", fine, "fingerprint " + p.Fingerprint + ", as the sandbox has it", ""}
}

func (r *run) checkPolicy(context.Context) check {
	file, err := r.dir.Policy()
	if err == nil {
		_, err = file.Compile()
	}
	if err != nil {
		return check{"policy", fails, err.Error(), "mend or delete it; nothing is sent until then"}
	}
	sites, others := file.List()
	switch mode := file.Mode(); {
	case mode == "sync-all":
		return check{"policy", informs, "every site's cookies are sent", ""}
	case mode == "allowlist" && len(file.Domains) == 0:
		return check{"policy", warns, "no site is named: nothing is sent", "fairlead-source accounts on github.com"}
	default:
		return check{"policy", fine, fmt.Sprintf("%s of %s and %s", mode, plural(len(sites), "site"), plural(len(others), "other pattern")), ""}
	}
}

func (r *run) checkBrowser(ctx context.Context, w whose) check {
	chosen, err := r.selected(ctx, w)
	if err != nil {
		hint := "say which with --browser, --profile or --cookie-file"
		if _, bad := r.dir.Policy(); bad != nil {
			return check{"browser", skipped, "the policy can't be read", ""}
		}
		if errors.Is(err, config.ErrNotPaired) {
			hint = ""
		}
		return check{"browser", fails, err.Error(), hint}
	}
	detail := fmt.Sprintf("%s, schema %d: %s to send", chosen.profile, chosen.set.Schema, plural(len(chosen.set.Cookies), "cookie"))
	if !chosen.set.Whole() {
		return check{"browser", warns, detail + "; " + chosen.leftOut()[len(chosen.leftOut())-1], "run it in the desktop's session, or give --keyring-password-file"}
	}
	return check{"browser", fine, detail, ""}
}
