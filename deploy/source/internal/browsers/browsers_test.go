package browsers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func names(all []Profile) (said []string) {
	for _, p := range all {
		said = append(said, p.String())
	}
	return said
}

// TestLinux: profiles of all brands wherever they are packaged, the one used last
// first; of what isn't a profile of the browser's folder, none.
func TestLinux(t *testing.T) {
	home := t.TempDir()
	at := Place{Home: home, Config: filepath.Join(home, "config")}
	if _, err := at.Choose("", ""); err == nil || !strings.Contains(err.Error(), "has been used here") {
		t.Error(err)
	}
	chrome := filepath.Join(at.Config, "google-chrome")
	put(t, filepath.Join(chrome, "Local State"), `{"profile":{"last_used":"Profile 2","info_cache":{"Default":{"name":"Me"},"Profile 2":{"name":"Work"},"Profile 3":{"name":"Never used"},"../outside":{"name":"Out"}}}}`)
	put(t, filepath.Join(chrome, "Default", "Network", "Cookies"), "")
	put(t, filepath.Join(chrome, "Default", "Cookies"), "older")
	put(t, filepath.Join(chrome, "Profile 2", "Cookies"), "")
	put(t, filepath.Join(at.Config, "outside", "Cookies"), "")
	put(t, filepath.Join(home, "snap/chromium/common/chromium/Default/Cookies"), "")
	put(t, filepath.Join(home, "snap/chromium/common/chromium/Local State"), "{broken")
	want := []string{`Google Chrome (Profile 2, "Work")`, `Google Chrome (Default, "Me")`, "Chromium (Default)"}
	if got := names(at.Profiles()); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for _, c := range []struct{ brand, profile, want string }{
		{"", "", want[0]}, {"chrome", "Me", want[1]}, {"", "Default", want[1]}, {"chromium", "", want[2]},
	} {
		if p, err := at.Choose(c.brand, c.profile); err != nil || p.String() != c.want {
			t.Errorf("%q %q: %s, %v", c.brand, c.profile, p, err)
		}
	}
	if p, _ := at.Choose("chrome", "Default"); !strings.HasSuffix(p.Cookies, "Network/Cookies") {
		t.Error(p.Cookies)
	}
	if _, err := at.Choose("chrome", "Nobody"); err == nil || !strings.Contains(err.Error(), `"Work"`) {
		t.Error(err)
	}
	if _, err := at.Choose("firefox", ""); err == nil || !strings.Contains(err.Error(), "brave") {
		t.Error(err)
	}
}

// TestDarwin: there they are elsewhere.
func TestDarwin(t *testing.T) {
	home := t.TempDir()
	put(t, filepath.Join(home, "Library/Application Support/Microsoft Edge/Default/Cookies"), "")
	put(t, filepath.Join(home, "config/chromium/Default/Cookies"), "")
	got := names(Place{Home: home, Config: filepath.Join(home, "config"), Darwin: true}.Profiles())
	if !slices.Equal(got, []string{"Microsoft Edge (Default)"}) {
		t.Error(got)
	}
}

// TestOf: a file that was put elsewhere is its brand's, or Chromium's.
func TestOf(t *testing.T) {
	if p := Of("brave", "/x/Profile 1/Cookies"); p.Brand.Keyring != "Brave" || p.Folder != "Profile 1" || p.Cookies != "/x/Profile 1/Cookies" {
		t.Errorf("%+v", p)
	}
	if p := Of("", "/x/Cookies"); p.Brand.Name != "chromium" {
		t.Errorf("%+v", p)
	}
}
