package extension_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/extension"
	"github.com/fairlead/fairlead/protocol"
)

func make1(t testing.TB, opts extension.Options) *extension.Extension {
	t.Helper()
	if !extension.Built() {
		missing(t, "the extension is not built: go run ./deploy/extension/build")
	}
	e, err := extension.Make(opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// manifestOf decodes what Chrome reads first.
func manifestOf(t testing.TB, e *extension.Extension) (m struct {
	Permissions []string `json:"permissions"`
	Optional    []string `json:"optional_permissions"`
	Hosts       []string `json:"host_permissions"`
	Sites       []string `json:"optional_host_permissions"`
	Chrome      string   `json:"minimum_chrome_version"`
	Worker      struct {
		File string `json:"service_worker"`
	} `json:"background"`
	Panel struct {
		Path string `json:"default_path"`
	} `json:"side_panel"`
	Scripts []struct {
		Matches []string `json:"matches"`
		JS      []string `json:"js"`
	} `json:"content_scripts"`
	Connectable struct {
		Matches []string `json:"matches"`
	} `json:"externally_connectable"`
	Action struct {
		Popup string `json:"default_popup"`
	} `json:"action"`
	Policy struct {
		Pages string `json:"extension_pages"`
	} `json:"content_security_policy"`
}) {
	t.Helper()
	if err := json.Unmarshal(e.Files["manifest.json"], &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// The panel's manifest asks for what the panel needs, at its relays and nowhere
// else.
func TestManifest(t *testing.T) {
	t.Parallel()
	e := make1(t, extension.Options{Origins: []string{"https://relay.example", "http://127.0.0.1:8080", "https://relay.example"}})
	m := manifestOf(t, e)
	if want := []string{"sidePanel", "storage"}; !slices.Equal(m.Permissions, want) {
		t.Errorf("permissions are %v, want %v", m.Permissions, want)
	}
	if want := []string{"tabs"}; !slices.Equal(m.Optional, want) {
		t.Errorf("optional permissions are %v, want %v", m.Optional, want)
	}
	hosts := []string{"https://relay.example/*", "http://127.0.0.1:8080/*"}
	if !slices.Equal(m.Hosts, hosts) || len(m.Scripts) != 1 || !slices.Equal(m.Scripts[0].Matches, hosts) {
		t.Errorf("hosts are %v, and of scripts %v; want %v", m.Hosts, m.Scripts, hosts)
	}
	if want := "connect-src 'self' https://relay.example wss://relay.example http://127.0.0.1:8080 ws://127.0.0.1:8080;"; !strings.Contains(m.Policy.Pages, want) {
		t.Errorf("the policy is %q, want %q in it", m.Policy.Pages, want)
	}
	for _, loose := range []string{"unsafe", "*", "data: blob"} {
		if strings.Contains(m.Policy.Pages, loose) {
			t.Errorf("the policy has %s: %s", loose, m.Policy.Pages)
		}
	}
	for _, name := range append(m.Scripts[0].JS, m.Worker.File, m.Panel.Path, "config.json") {
		if e.Files[name] == nil {
			t.Errorf("there is no %s among %v", name, e.Names())
		}
	}
	// What the worker loads is there, too.
	for line := range strings.Lines(string(e.Files[m.Worker.File])) {
		name := strings.Trim(strings.TrimPrefix(line, "import"), " ';./\n")
		if e.Files[name] == nil {
			t.Errorf("the worker loads %q", name)
		}
	}
}

// The id is the same on every machine, and follows from the key.
func TestID(t *testing.T) {
	t.Parallel()
	const id = "iiccclfiiimldghpdoopenbcnepmabgb"
	if e := make1(t, extension.Options{Origins: []string{"http://a"}}); e.ID != id {
		t.Errorf("the id is %s, want %s: whoever listed it has to list it anew", e.ID, id)
	}
	// A key whose id Chrome gave: Chrome's own PDF viewer.
	const viewer = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDN6hM0rsDYGbzQPQfOygqlRtQgKUXMfnSjhIBL7LnReAVBEd7ZmKtyN2qmSasMl4HZpMhVe2rPWVVwBDl6iyNE/Kok6E6v6V3vCLGsOpQAuuNVye/3QxzIldzG/jQAdWZiyXReRVapOhZtLjGfywCvlWq7Sl/e3sbc0vWybSDI2QIDAQAB"
	if e := make1(t, extension.Options{Origins: []string{"http://a"}, Key: viewer}); e.ID != "mhjfbmdgcfjbbpaeojofohoefgiehjai" {
		t.Errorf("Chrome's key has the id %s", e.ID)
	}
}

// pagesFor are the options of the part pages alone.
func pagesFor(origin, jwks string) extension.Options {
	return extension.Options{Parts: []string{"pages"}, Origins: []string{origin}, JWKS: jwks}
}

// The part pages is in no extension that didn't ask for it; what it adds is what it
// needs, at its relays and the control plane.
func TestPagesManifest(t *testing.T) {
	t.Parallel()
	if e := make1(t, extension.Options{Origins: []string{"https://a.example"}}); slices.Contains(e.Parts, "pages") || bytes.Contains(e.Files["manifest.json"], []byte("debugger")) {
		t.Errorf("whoever names no part gets %v", e.Parts)
	}
	e := make1(t, extension.Options{Parts: []string{"panel", "pages"}, Origins: []string{"https://a.example", "http://127.0.0.1:8080"}, JWKS: "https://control.example/.well-known/jwks.json"})
	m := manifestOf(t, e)
	if want := []string{"alarms", "debugger", "sidePanel", "storage", "tabs"}; !slices.Equal(m.Permissions, want) || m.Optional != nil {
		t.Errorf("permissions are %v and %v, want %v", m.Permissions, m.Optional, want)
	}
	relays := []string{"https://a.example/*", "http://127.0.0.1:8080/*"}
	if !slices.Equal(m.Connectable.Matches, relays) || len(m.Scripts) != 1 || !slices.Equal(m.Scripts[0].Matches, relays) {
		t.Errorf("pages of %v may speak to it, with scripts in %v, want %v", m.Connectable.Matches, m.Scripts, relays)
	}
	if want := append(relays, "https://control.example/*"); !slices.Equal(m.Hosts, want) {
		t.Errorf("hosts are %v, want %v", m.Hosts, want)
	}
	if m.Action.Popup != "pages.html" || e.Files["pages.html"] == nil || !strings.Contains(string(e.Files[m.Worker.File]), "./pages-worker.js") {
		t.Errorf("the popup is %q, the worker\n%s", m.Action.Popup, e.Files[m.Worker.File])
	}
	var config struct {
		Origins []string
		JWKS    string
		Tabs    string
		Keys    any
		Except  []string
	}
	if err := json.Unmarshal(e.Files["config.json"], &config); err != nil {
		t.Fatal(err)
	}
	if config.JWKS != "https://control.example/.well-known/jwks.json" || config.Tabs != "shared" || config.Keys != nil || len(config.Origins) != 2 || config.Except == nil {
		t.Errorf("config.json is %s", e.Files["config.json"])
	}
}

// syncFor are the options of the part sync alone.
func syncFor(origin, control string) extension.Options {
	return extension.Options{Parts: []string{"sync"}, Origins: []string{origin}, ControlPlane: control}
}

// The part sync is in no extension that didn't ask for it. It has no site's
// permission: Chrome asks the person for each, when she adds it.
func TestSyncManifest(t *testing.T) {
	t.Parallel()
	const control = "https://control.example/.well-known/jwks.json"
	for _, parts := range [][]string{nil, {"panel"}, {"panel", "pages"}} {
		e := make1(t, extension.Options{Parts: parts, Origins: []string{"https://a.example"}, JWKS: control})
		if m := manifestOf(t, e); slices.Contains(e.Parts, "sync") || slices.Contains(m.Permissions, "cookies") || m.Sites != nil || m.Chrome != "120" {
			t.Errorf("%v: it may %v, at %v, from Chrome %s on", parts, m.Permissions, m.Sites, m.Chrome)
		}
	}
	m := manifestOf(t, make1(t, syncFor("https://a.example", "https://control.example")))
	if want := []string{"activeTab", "alarms", "cookies", "storage"}; !slices.Equal(m.Permissions, want) || m.Optional != nil || m.Scripts != nil || m.Connectable.Matches != nil {
		t.Errorf("permissions are %v and %v, scripts %v; want %v", m.Permissions, m.Optional, m.Scripts, want)
	}
	hosts := []string{"https://a.example/*", "https://control.example/*"}
	if !slices.Equal(m.Hosts, hosts) || !slices.Equal(m.Sites, []string{"*://*/*"}) || m.Chrome != "133" || m.Action.Popup != "sync.html" {
		t.Errorf("hosts are %v, sites %v, from Chrome %s on, the popup is %q", m.Hosts, m.Sites, m.Chrome, m.Action.Popup)
	}
	// With all parts there is one popup, which leads on, and the control plane once.
	e := make1(t, extension.Options{Parts: []string{"panel", "pages", "sync"}, Origins: []string{"https://a.example"}, JWKS: control})
	if m := manifestOf(t, e); m.Action.Popup != "pages.html" || !slices.Equal(m.Hosts, hosts) || e.Files["sync.html"] == nil {
		t.Errorf("hosts are %v, the popup is %q of %v", m.Hosts, m.Action.Popup, e.Names())
	}
	var config struct{ ControlPlane string }
	if err := json.Unmarshal(e.Files["config.json"], &config); err != nil || config.ControlPlane != "https://control.example" {
		t.Errorf("config.json is %s (%v)", e.Files["config.json"], err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts extension.Options
		kind protocol.Kind
		text string
	}{
		"pages without keys": {extension.Options{Parts: []string{"pages"}, Origins: []string{"http://a"}}, protocol.KindInvalid, "needs the control plane's keys"},
		"keys of a relay":    {pagesFor("http://a", "http://a/.well-known/jwks.json"), protocol.KindInvalid, "the relay's word"},
		"keys with a user":   {pagesFor("http://a", "http://u@b/.well-known/jwks.json"), protocol.KindInvalid, "not the address"},
		"keys of a file":     {pagesFor("http://a", "file:///etc/passwd"), protocol.KindInvalid, "not an origin"},
		"other tabs":         {extension.Options{Parts: []string{"pages"}, Origins: []string{"http://a"}, JWKS: "http://b/k", Tabs: "some"}, protocol.KindInvalid, "shared or all"},
		"keys that are none": {extension.Options{Parts: []string{"pages"}, Origins: []string{"http://a"}, Keys: []byte(`{"keys":[]}`)}, protocol.KindInvalid, "no usable key"},
		"keys of two kinds":  {extension.Options{Parts: []string{"pages"}, Origins: []string{"http://a"}, JWKS: "http://b/k", Keys: []byte(`{}`)}, protocol.KindInvalid, "not both"},
		"a wild exception":   {extension.Options{Parts: []string{"pages"}, Origins: []string{"http://a"}, JWKS: "http://b/k", Except: []string{"https://*.b"}}, protocol.KindInvalid, "not an origin"},
		"sync, and nowhere":  {extension.Options{Parts: []string{"sync"}, Origins: []string{"http://a"}}, protocol.KindInvalid, "control plane's own address"},
		"sync at a relay":    {syncFor("http://a", "http://a"), protocol.KindInvalid, "is a relay"},
		"sync in the clear":  {syncFor("http://a", "http://control.example"), protocol.KindInvalid, "needs https://"},
		"sync at a path":     {syncFor("http://a", "https://control.example/x"), protocol.KindInvalid, "not an origin"},
		"another part":       {extension.Options{Parts: []string{"panels"}, Origins: []string{"http://a"}}, protocol.KindInvalid, "panel, pages, sync"},
		"no origin":          {extension.Options{}, protocol.KindInvalid, "origin of a relay"},
		"a path":             {extension.Options{Origins: []string{"https://a/b"}}, protocol.KindInvalid, "not an origin"},
		"a user":             {extension.Options{Origins: []string{"https://u@a"}}, protocol.KindInvalid, "not an origin"},
		"all hosts":          {extension.Options{Origins: []string{"https://*"}}, protocol.KindInvalid, "not an origin"},
		"more of a policy":   {extension.Options{Origins: []string{"https://a;script-src"}}, protocol.KindInvalid, "not an origin"},
		"an IPv6 address":    {extension.Options{Origins: []string{"http://[::1]:80"}}, protocol.KindInvalid, "IPv6"},
		"another scheme":     {extension.Options{Origins: []string{"file://a"}}, protocol.KindInvalid, "not an origin"},
		"a key that is none": {extension.Options{Origins: []string{"http://a"}, Key: "x"}, protocol.KindInvalid, "key"},
	} {
		_, err := extension.Make(test.opts)
		if err == nil || protocol.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %q", name, err, test.text)
		}
	}
}

// Written twice it is the same, what an earlier version had is gone, and nothing
// else is.
func TestWrite(t *testing.T) {
	t.Parallel()
	e := make1(t, extension.Options{Origins: []string{"http://a"}})
	dir := filepath.Join(t.TempDir(), "made", "here")
	write := func() error { return e.WriteTo(dir) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "old.js"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(e.Files) {
		t.Errorf("%d files are there (%v), want %d", len(entries), err, len(e.Files))
	}
	if err := os.Mkdir(filepath.Join(dir, "thesis"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := write(); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("a folder with another one in it: %v", err)
	}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "thesis.txt"), []byte("years"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.WriteTo(home); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("a folder with something else: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(home, "thesis.txt")); err != nil || string(data) != "years" {
		t.Errorf("what was there is %q (%v)", data, err)
	}
}

func TestZip(t *testing.T) {
	t.Parallel()
	e := make1(t, extension.Options{Origins: []string{"http://a"}})
	first, err := e.Zip()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := e.Zip(); err != nil || !bytes.Equal(first, second) {
		t.Errorf("two archives of the same files differ (%v)", err)
	}
	r, err := zip.NewReader(bytes.NewReader(first), int64(len(first)))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.File) != len(e.Files) {
		t.Errorf("%d files are in it, want %d", len(r.File), len(e.Files))
	}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(in); err != nil || !bytes.Equal(data, e.Files[f.Name]) {
			t.Errorf("%s isn't what it is unpacked (%v)", f.Name, err)
		}
	}
}
