package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

func TestAbsoluteSymlinks(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/f=text", "d/e/g=deep", "../outside/canary=secret",
		"file=->"+dir+"/a/f", "folder=->"+dir+"/a", "slash=->"+dir+"//./a/", "chain=->a/chained", "a/chained=->"+dir+"/folder/../d/../a/f",
		"top=->"+dir, "new=->"+dir+"/a/new",
		"out=->/etc/passwd", "up=->"+dir+"/../outside/canary", "upFolder=->"+dir+"/a/../../outside", "beside=->"+dir+"side",
		"other=->"+dir+"side/a/f",
		"fileSlash=->"+dir+"/a/f/", "none=->"+dir+"/a/none", "loop=->"+dir+"/loop", "staging=->"+dir+"/"+Staging+"/"+ignoreName,
		"a/relOut=->../../outside/canary", "viaRel=->"+dir+"/a/relOut")
	for _, path := range []string{"file", "folder/f", "slash/f", "chain", "folder/chained"} {
		if text, err := read(s, path); text != "text" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	for path, kind := range map[string]protocol.Kind{
		"out": protocol.KindInvalid, "up": protocol.KindInvalid, "upFolder/canary": protocol.KindInvalid, "beside": protocol.KindInvalid, "other": protocol.KindInvalid,
		"fileSlash": protocol.KindNotFound, "none": protocol.KindNotFound, "loop": protocol.KindInvalid, "staging": protocol.KindNotFound,
		"viaRel": protocol.KindInvalid, "top": protocol.KindInvalid,
	} {
		_, err := read(s, path)
		wantKind(t, err, kind)
	}
	wantPaths(t, paths(t, s, "folder", false), "/folder/chained", "/folder/f", "/folder/relOut")
	// What may be read may be written, too.
	for path, actual := range map[string]string{"file": "a/f", "folder/h": "a/h", "new": "a/new", "folder/sub/i": "a/sub/i"} {
		_, err := s.Write(path, strings.NewReader("mine"), WriteOptions{})
		want(t, err)
		if got := content(t, filepath.Join(dir, actual)); got != "mine" {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{"out", "up", "upFolder/x", "loop", "viaRel", "beside"} {
		_, err := s.Write(path, strings.NewReader("bad"), WriteOptions{})
		wantKind(t, err, protocol.KindInvalid)
	}
	wantPaths(t, namesIn(t, dir+"/../outside"), "canary")
}

// Programs may know the workspace by a path with a symlink in it.
func TestAbsoluteSymlinksByAnotherName(t *testing.T) {
	_, dir := open(t)
	alias := filepath.Join(t.TempDir(), "alias")
	want(t, os.Symlink(dir, alias))
	put(t, dir, "f=text", "one=->"+alias+"/f", "two=->"+dir+"/f")
	s := reopen(t, alias)
	for _, path := range []string{"one", "two"} {
		if text, err := read(s, path); text != "text" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
}

func TestResolveIsBounded(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/f=x")
	// Each symlink is many steps, and there are many of them.
	long := strings.Repeat("a/../", 700)
	put(t, dir, "long=->"+dir+"/"+long+"a/f", "a/l0=->"+dir+"/a/f")
	before := descriptors(t)
	_, err := read(s, "long")
	wantKind(t, err, protocol.KindInvalid)
	name := "a/f"
	for i := range maxFollowed + 1 {
		next := "link" + string(rune('A'+i))
		put(t, dir, next+"=->"+dir+"/"+name)
		name = next
	}
	_, err = read(s, name)
	wantKind(t, err, protocol.KindInvalid)
	if text, err := read(s, "linkA"); text != "x" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors are left open", n-before)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	return len(namesIn(t, "/proc/self/fd"))
}

// FuzzResolve makes symlinks of any target and checks that nothing outside is
// read, whatever they lead to.
func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"/a/f", "//a/../a/f", "/../outside", "/a/link", "/./link", "/a/..", "/../workspace/a/f", "/a/f/../../.."} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		s, dir := open(t)
		put(t, dir, "a/f=text", "../outside=secret")
		if unix.Symlink(dir+first, dir+"/link") != nil || unix.Symlink(dir+second, dir+"/a/link") != nil {
			return
		}
		for _, path := range []string{"link", "a/link", "link/f", "link/link", "link/outside"} {
			if text, err := read(s, path); err == nil && text != "text" && text != "*\n" {
				t.Fatalf("%q, %q: %s is %q", first, second, path, text)
			}
		}
	})
}
