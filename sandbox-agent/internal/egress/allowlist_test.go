package egress

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/publicsuffix"

	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// shared are domains under which anybody can get a name of their own, and
// hosts that everybody's storage shares.
var shared = []string{
	"cloudfront.net", "amazonaws.com", "awsapprunner.com", "awsglobalaccelerator.com", "elasticbeanstalk.com", "on.aws",
	"github.io", "github.dev", "gitlab.io", "bitbucket.io", "codeberg.page", "githubpreview.dev", "app.github.dev",
	"herokuapp.com", "herokudns.com", "vercel.app", "vercel.dev", "now.sh", "netlify.app", "netlify.com", "onrender.com",
	"workers.dev", "pages.dev", "r2.dev", "r2.cloudflarestorage.com", "trycloudflare.com", "cloudflareaccess.com", "cdn.cloudflare.net",
	"fastly.net", "fastlylb.net", "global.ssl.fastly.net", "edgecompute.app",
	"akamai.net", "akamaized.net", "akamaihd.net", "akamaiedge.net", "edgesuite.net", "edgekey.net", "akamaitechnologies.com",
	"azureedge.net", "azurewebsites.net", "azurefd.net", "azure-api.net", "azure.com", "azurestaticapps.net", "azurecontainer.io",
	"azurecontainerapps.io", "windows.net", "trafficmanager.net", "cloudapp.net",
	"web.app", "firebaseapp.com", "firebaseio.com", "appspot.com", "googleusercontent.com", "storage.googleapis.com", "run.app",
	"cloudfunctions.net", "googleapis.com", "withgoogle.com", "translate.goog",
	"supabase.co", "fly.dev", "deno.dev", "railway.app", "repl.co", "replit.app", "replit.dev", "glitch.me", "surge.sh", "ngrok.io",
	"ngrok.app", "ngrok-free.app", "loca.lt", "serveo.net", "hf.space", "digitaloceanspaces.com", "ondigitalocean.app",
	"backblazeb2.com", "wasabisys.com", "linodeobjects.com", "b-cdn.net", "kxcdn.com", "stackpathdns.com", "cdn77.org",
	"sentry.io", "myshopify.com", "wordpress.com", "blogspot.com", "readthedocs.io", "gitbook.io", "notion.site", "webhook.site",
	"requestbin.com", "pipedream.net", "zapier.com", "slack.com", "auth0.com", "okta.com", "zendesk.com", "atlassian.net",
}

// lint returns what is wrong with an allowlist (case 79).
func lint(text string) (faults []string) {
	a, err := parseAllowlist(text)
	if err != nil {
		return []string{err.Error()}
	}
	seen := map[string]bool{}
	for _, category := range a.categories {
		if !slices.IsSorted(category.Patterns) {
			faults = append(faults, "not sorted: "+category.Name)
		}
		if len(category.Patterns) == 0 || category.Name == "" || seen["["+category.Name] {
			faults = append(faults, "category: "+category.Name)
		}
		seen["["+category.Name] = true
		for _, text := range category.Patterns {
			if seen[text] {
				faults = append(faults, "twice: "+text)
			}
			seen[text] = true
			faults = append(faults, lintPattern(text)...)
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && line[0] != '[' && !seen[line] {
			faults = append(faults, "not canonical: "+line)
		}
	}
	return faults
}

func lintPattern(text string) (faults []string) {
	pattern, err := hostname.ParsePattern(text)
	if err != nil {
		return []string{err.Error()}
	}
	base := pattern.Base()
	if base.IsIP() || base.IsLoopback() || !strings.Contains(base.Name, ".") {
		return []string{"not a public name: " + text}
	}
	if suffix, _ := publicsuffix.PublicSuffix(base.Name); suffix == base.Name {
		faults = append(faults, "public suffix: "+text)
	}
	for _, name := range shared {
		domain, err := hostname.ParseName(name)
		if err != nil {
			return []string{err.Error()}
		}
		switch {
		case pattern.Wildcard() && (base.Under(domain) || domain.Under(base)):
			faults = append(faults, "wildcard over shared "+name+": "+text)
		case base.Name == "storage.googleapis.com" || strings.HasPrefix(base.Name, "s3.") && base.Under(domain):
			faults = append(faults, "shared storage: "+text)
		}
	}
	return faults
}

func TestAllowlistLint(t *testing.T) {
	if faults := lint(allowlistText); len(faults) > 0 {
		t.Error(strings.Join(faults, "\n"))
	}
}

// TestLintCanFail shows the lint a list for each of its rules.
func TestLintCanFail(t *testing.T) {
	for list, want := range map[string]string{
		"[a]\n*.cloudfront.net":             "wildcard over shared",
		"[a]\n*.d1.cloudfront.net":          "wildcard over shared",
		"[a]\n*.s3.us-east-1.amazonaws.com": "wildcard over shared",
		"[a]\n*.github.io":                  "wildcard over shared",
		"[a]\n*.ssl.fastly.net":             "wildcard over shared",
		"[a]\n*.googleapis.com":             "wildcard over shared",
		"[a]\n*.cloudflare.net":             "wildcard over shared",
		"[a]\n*.ingest.sentry.io":           "wildcard over shared",
		"[a]\ns3.amazonaws.com":             "shared storage",
		"[a]\nstorage.googleapis.com":       "shared storage",
		"[a]\n*.co.uk":                      "public suffix",
		"[a]\n*.com":                        "two labels",
		"[a]\nlocalhost":                    "not a public name",
		"[a]\n1.1.1.1":                      "not a public name",
		"[a]\nb.com\na.com":                 "not sorted",
		"[a]\na.com\n[b]\na.com":            "twice",
		"[a]\na.com\n[a]\nb.com":            "category",
		"[a]":                               "category",
		"[a]\nA.com.":                       "not canonical",
		"a.com":                             "no category",
		"[a]\nhttps://a.com":                "line 2",
	} {
		if faults := strings.Join(lint(list), "\n"); !strings.Contains(faults, want) {
			t.Errorf("%q: %q, want %q", list, faults, want)
		}
	}
}

func TestAllowlistPorts(t *testing.T) {
	a, err := parseAllowlist("[a]\n*.wild.com\na.com\na.com:22\nb.com:8443\n")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"a.com:443": true, "a.com:80": true, "a.com:22": true, "a.com:8080": false, "b.com:8443": true, "b.com:443": false,
		"x.wild.com:443": true, "wild.com:443": false, "x.wild.com:22": false, "c.a.com:443": false, "xa.com:443": false,
	} {
		if got := a.allows(host(t, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// host parses a host with its port.
func host(t *testing.T, text string) hostname.Host {
	t.Helper()
	h, err := hostname.Parse(text, 0)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return h
}
