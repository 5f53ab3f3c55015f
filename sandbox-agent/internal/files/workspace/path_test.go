package workspace

import (
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestClean(t *testing.T) {
	long := strings.Repeat("n", maxNameBytes)
	for from, want := range map[string]string{
		"/": ".", ".": ".", "./": "", "//": ".", "/a": "a", "a": "a", "a//b": "a/b", "/./a/./b": "a/b",
		`a\b`: `a\b`, "...": "...", "..a": "..a", "a b\n": "a b\n", "é": "é", long: long,
		"": "", "..": "", "/../a": "", "a/../b": "", "a/..": "", "a/": "", "a//": "", "a/./": "",
		"a\x00b": "", long + "n": "", "\xff": "", strings.Repeat("a/", maxDepth) + "a": "",
		strings.Repeat("a/", maxDepth-1) + "a": strings.Repeat("a/", maxDepth-1) + "a",
		strings.Repeat("/", maxPathBytes+1):    "",
	} {
		got, err := Clean(from)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Clean(%.40q) = %.40q, %v", from, got, err)
		}
		if err != nil {
			wantKind(t, err, protocol.KindInvalid)
		}
	}
	for _, p := range []string{Staging, "/" + Staging + "/x", "a/" + Staging, tempPrefix + "x"} {
		_, err := Clean(p)
		wantKind(t, err, protocol.KindNotFound)
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"/", "a/b", "../a", "a/./b//c", "a\x00", `..\a`, "\xff", strings.Repeat("x", 300), Staging} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p string) {
		clean, err := Clean(p)
		if err != nil {
			if clean != "" || protocol.KindOf(err) == protocol.KindInternal {
				t.Fatalf("%q: %q, %v", p, clean, err)
			}
			return
		}
		if again, err := Clean(clean); again != clean || err != nil {
			t.Fatalf("%q: %q becomes %q, %v", p, clean, again, err)
		}
		if !filepath.IsLocal(clean) || path.Clean(clean) != clean || path.Clean("/"+p) != path.Clean("/"+clean) {
			t.Fatalf("%q: %q", p, clean)
		}
		if again, err := Clean(shown(clean)); again != clean || err != nil {
			t.Fatalf("%q: what is shown becomes %q, %v", p, again, err)
		}
	})
}
