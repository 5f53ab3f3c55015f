package extension

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A part is what an extension can be made of.
type part struct {
	name  string
	named bool   // only in an extension that asks for it by name
	does  string // for the manifest's description

	// What it adds to the manifest.
	permissions []string
	optional    []string // asked for when the person switches on what needs them
	sites       bool     // so are sites, each one when she names it
	chrome      int      // the least version of Chrome; 0: minimumChrome
	panel       string   // page of the side panel
	content     []string // scripts in the relays' pages
	worker      string   // module of the service worker
	popup       string   // page that the button opens, where no part before has one
	pages       bool     // pages of the relays may speak to it, which it checks by keys
	control     bool     // it asks the control plane, at its own address
}

// all are the parts, in the order in which a manifest names what they need.
var all = []part{
	{
		name:        "panel",
		does:        "Claude Code in a sandbox, beside the page: a terminal and a chat.",
		permissions: []string{"sidePanel", "storage"},
		optional:    []string{"tabs"}, // addresses of the person's tabs
		panel:       "panel.html",
		content:     []string{"content.js"},
		worker:      "worker.js",
	},
	{
		// It can drive the person's tabs, so nobody gets it who didn't ask for it.
		name: "pages", named: true,
		does:        "Runs what a session of yours has signed in tabs that you share with it.",
		permissions: []string{"alarms", "debugger", "storage", "tabs"},
		worker:      "pages-worker.js",
		popup:       "pages.html",
		pages:       true,
		control:     true,
	},
	{
		// It can read the cookies of sites that the person names.
		name: "sync", named: true,
		does:        "Keeps a sandbox signed in at the sites that you add.",
		permissions: []string{"activeTab", "alarms", "cookies", "storage"}, // by activeTab the popup knows which site is in front
		sites:       true,
		chrome:      133, // X25519
		worker:      "sync-worker.js",
		popup:       "sync.html",
		control:     true,
	},
}

// Parts returns the names of all parts.
func Parts() []string {
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	return names
}

// defaultParts returns the names of those that an extension has when none is named.
func defaultParts() []string {
	var names []string
	for _, p := range all {
		if !p.named {
			names = append(names, p.name)
		}
	}
	return names
}

// choose returns the parts with these names, each once, in their order; without a
// name those that need not be named.
func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		names = defaultParts()
	}
	for _, name := range names {
		if !slices.Contains(Parts(), name) {
			return nil, protocol.Errorf(protocol.KindInvalid, "part %q: want %s", name, strings.Join(Parts(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p part) bool { return !slices.Contains(names, p.name) }), nil
}

// icons are by their sizes.
var icons = map[string]string{"16": "icon-16.png", "32": "icon-32.png", "48": "icon-48.png", "128": "icon-128.png"}

// minimumChrome has all that the scripts use, of most parts.
const minimumChrome = 120

// anySite is what the person may be asked for, of which Chrome asks for one site's at a
// time. One of both schemes: it lets nobody ask for *://a.example/* by one of each.
var anySite = []string{"*://*/*"}

// manifest returns the manifest of an extension with these parts. What a part
// doesn't need isn't in it.
func manifest(parts []part, opts Options, key string) map[string]any {
	version := opts.Version
	if version == "" {
		version = "1.0.0"
	}
	hosts, chrome := slices.Clone(opts.Origins), minimumChrome
	for _, p := range parts {
		chrome = max(chrome, p.chrome)
	}
	if slices.ContainsFunc(parts, func(p part) bool { return p.control }) {
		hosts = append(hosts, controlHosts(opts)...)
	}
	action := map[string]any{"default_title": "fairlead", "default_icon": icons}
	m := map[string]any{
		"manifest_version":        3,
		"name":                    "fairlead",
		"version":                 version,
		"key":                     key,
		"minimum_chrome_version":  strconv.Itoa(chrome),
		"background":              map[string]any{"service_worker": "worker-all.js", "type": "module"},
		"action":                  action,
		"icons":                   icons,
		"host_permissions":        patterns(hosts),
		"content_security_policy": map[string]any{"extension_pages": policy(hosts)},
	}
	var does, permissions, optional, scripts []string
	for _, p := range parts {
		does = append(does, p.does)
		permissions, optional, scripts = append(permissions, p.permissions...), append(optional, p.optional...), append(scripts, p.content...)
		if p.panel != "" {
			m["side_panel"] = map[string]any{"default_path": p.panel}
		}
		if _, taken := action["default_popup"]; p.popup != "" && !taken {
			action["default_popup"] = p.popup
		}
		if p.sites {
			m["optional_host_permissions"] = anySite
		}
		if p.pages {
			m["externally_connectable"] = map[string]any{"matches": patterns(opts.Origins)}
		}
	}
	m["description"] = strings.Join(does, " ")
	optional = slices.DeleteFunc(optional, func(name string) bool { return slices.Contains(permissions, name) })
	set := func(name string, list []string) {
		slices.Sort(list)
		if list = slices.Compact(list); len(list) > 0 {
			m[name] = list
		}
	}
	set("permissions", permissions)
	set("optional_permissions", optional)
	if len(scripts) > 0 {
		m["content_scripts"] = []any{map[string]any{"matches": patterns(opts.Origins), "js": scripts, "run_at": "document_start"}}
	}
	return m
}

// patterns are those of all addresses of origins.
func patterns(origins []string) []string {
	list := make([]string, len(origins))
	for i, origin := range origins {
		list[i] = origin + "/*"
	}
	return list
}

// policy is that of the extension's pages: our own scripts and styles, no markup
// out of strings, and connections to the relays and the control plane alone.
func policy(origins []string) string {
	connect := "connect-src 'self'"
	for _, origin := range origins {
		// "http" in front of the rest makes "ws", "https" "wss".
		connect += " " + origin + " ws" + strings.TrimPrefix(origin, "http")
	}
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", connect,
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; ")
}

// workers returns the service worker: that of each part.
func workers(parts []part) []byte {
	var all strings.Builder
	for _, p := range parts {
		if p.worker != "" {
			fmt.Fprintf(&all, "import './%s';\n", p.worker)
		}
	}
	return []byte(all.String())
}
