package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/browsers"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/deploy/source/internal/cookiefile"
	"github.com/fairlead/fairlead/deploy/source/internal/keyring"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A whose says whose cookies are meant. What the command line doesn't say source.yaml
// does, and else it is the first browser that is found.
type whose struct {
	browser, profile, file string
	password               string
}

func (w *whose) declare(c *program.Command) {
	c.String(&w.browser, "browser", "", "`name` of the browser: "+strings.Join(browsers.Names(), ", "))
	c.String(&w.profile, "profile", "", "`name` or folder of its profile (default: the one used last)")
	c.String(&w.file, "cookie-file", "", "`path` of the file Cookies, where the browser has it elsewhere")
	c.Secret(&w.password, "keyring-password", "what the keyring has as the browser's \"Safe Storage\", where it can't be asked")
}

// put notes what the command line says in source.yaml.
func (w *whose) put(s *config.Source) {
	s.Browser.Name = cmp.Or(w.browser, s.Browser.Name)
	s.Browser.Profile = cmp.Or(w.profile, s.Browser.Profile)
	s.Chrome.DBPath = cmp.Or(w.file, s.Chrome.DBPath)
}

// find returns the profile that is meant.
func (w whose) find(s config.Source) (browsers.Profile, error) {
	w.put(&s)
	at, err := place()
	if err != nil {
		return browsers.Profile{}, err
	}
	if s.Chrome.DBPath != "" {
		return browsers.Of(s.Browser.Name, s.Chrome.InHome(at.Home)), nil
	}
	return at.Choose(s.Browser.Name, s.Browser.Profile)
}

// read reads the profile's cookies of the sites that pass.
func (w whose) read(ctx context.Context, p browsers.Profile, policy *seal.Policy, scratch string) (cookiefile.Set, error) {
	o := cookiefile.Options{Path: p.Cookies, Scratch: scratch, Platform: cookiefile.Linux, Keyring: keyring.Browser(p.Brand.Keyring), Policy: policy, Now: time.Now()}
	if runtime.GOOS == "darwin" {
		o.Platform, o.Keyring = cookiefile.Darwin, keychain(p.Brand.Keychain)
	}
	if w.password != "" {
		o.Keyring = given(w.password)
	}
	return cookiefile.Read(ctx, o)
}

// A given password was said on the command line.
type given string

func (g given) Password(context.Context) (string, error) { return string(g), nil }

// A keychain is macOS's, by the browser's name. It is the person who asks that.
type keychain string

func (k keychain) Password(context.Context) (string, error) {
	return "", fmt.Errorf("security find-generic-password -w -s %q prints it; give that by --keyring-password-file", string(k)+" Safe Storage")
}

// A selection is what would be sent, and what was left out here.
type selection struct {
	set     cookiefile.Set
	profile browsers.Profile
}

// leftOut says in a line for each reason what isn't sent, and why.
func (s selection) leftOut() (lines []string) {
	add := func(n int, why string) {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s", plural(n, "cookie"), why))
		}
	}
	add(s.set.Partitioned, "they are partitioned: they belong to a site inside another one")
	add(s.set.Expired, "they have expired")
	for _, why := range slices.Sorted(maps.Keys(s.set.Unreadable)) {
		add(s.set.Unreadable[why], why)
	}
	return lines
}

// short is how soon a cookie of a site ends that renews it all the time, by a key that
// is bound to this computer.
const short = 15 * time.Minute

// warnings says which of the cookies will hardly work elsewhere.
func (s selection) warnings(now time.Time) (lines []string) {
	google, soon := 0, 0
	for _, c := range s.set.Cookies {
		host := "." + strings.TrimPrefix(c.HostKey, ".")
		switch {
		case c.Secure != 0 && strings.HasSuffix(host, ".google.com"):
			google++
		case c.Secure != 0 && c.HasExpires != 0 && c.Expires.Time().Sub(now) < short:
			soon++
		}
	}
	if google > 0 {
		lines = append(lines, fmt.Sprintf("%s of google.com: Chrome may bind them to this computer, so that they don't live long elsewhere", plural(google, "cookie")))
	}
	if soon > 0 {
		lines = append(lines, fmt.Sprintf("%s: they end within %d minutes, and may be bound to this computer", plural(soon, "cookie"), int(short/time.Minute)))
	}
	return lines
}

// hosts counts the cookies of each host.
func (s selection) hosts() map[string]int {
	count := map[string]int{}
	for _, c := range s.set.Cookies {
		count[c.HostKey]++
	}
	return count
}

// selected reads the policy, and the cookies that it lets pass.
func (r *run) selected(ctx context.Context, w whose) (selection, error) {
	file, err := r.dir.Policy()
	if err != nil {
		return selection{}, fmt.Errorf("nothing is sent, since the policy can't be read: %w", err)
	}
	policy, err := file.Compile()
	if err != nil {
		return selection{}, fmt.Errorf("nothing is sent, since the policy can't be read: %w", err)
	}
	s, err := r.dir.Source()
	if err != nil {
		return selection{}, err
	}
	profile, err := w.find(s)
	if err != nil {
		return selection{}, err
	}
	set, err := w.read(ctx, profile, policy, r.dir.Scratch())
	return selection{set, profile}, err
}

// key returns the key of the pairing.
func (r *run) key(s config.Source) (*seal.Key, error) {
	if s.Peer.Hostname != "" {
		k, err := r.dir.Key(s.Peer.Hostname)
		if err != nil {
			return nil, err
		}
		return seal.Paired(k.Key).Key()
	}
	if s.Security.SharedSecret != "" {
		return seal.SharedKey(s.Security.SharedSecret)
	}
	return nil, config.ErrNotPaired
}

// Of source.yaml.
var errNoAddress = errors.New("source.yaml names no sink.url: pair anew")
