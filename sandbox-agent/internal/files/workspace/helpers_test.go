package workspace

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns an FS of a new folder, in a folder of its own.
func open(t testing.TB, change ...func(*Options)) (*FS, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "workspace")
	if err := os.Mkdir(dir, 0o2775); err != nil {
		t.Fatal(err)
	}
	return reopen(t, dir, change...), dir
}

func reopen(t testing.TB, dir string, change ...func(*Options)) *FS {
	t.Helper()
	o := Options{Dir: dir}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// put makes files in dir: a path that ends in a slash is a folder, content that
// begins with "->" a symlink.
func put(t testing.TB, dir string, files ...string) {
	t.Helper()
	for _, file := range files {
		name, content, _ := strings.Cut(file, "=")
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o775); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(content, "->"); link {
			err = os.Symlink(target, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o775)
		} else {
			err = os.WriteFile(path, []byte(content), 0o664)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wantKind(t testing.TB, err error, kind protocol.Kind) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		t.Errorf("got %v (%v), want %v", err, protocol.KindOf(err), kind)
	}
}

func want(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func paths(t testing.TB, s *FS, path string, recursive bool) []string {
	t.Helper()
	var all []string
	err := s.List(context.Background(), path, recursive, func(e protocol.FileInfo) error {
		all = append(all, e.Path)
		return nil
	})
	want(t, err)
	return all
}

func wantPaths(t testing.TB, got []string, expect ...string) {
	t.Helper()
	if !slices.Equal(got, expect) {
		t.Errorf("got %q, want %q", got, expect)
	}
}

// stagedFiles returns what is in the staging folder.
func stagedFiles(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, Staging))
	want(t, err)
	var names []string
	for _, e := range entries {
		if e.Name() != ignoreName {
			names = append(names, e.Name())
		}
	}
	return names
}

func read(s *FS, path string) (string, error) {
	f, err := s.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// tmpfs mounts a filesystem of size on dir, or skips the test.
func tmpfs(t testing.TB, dir, size string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a filesystem of its own can't be mounted: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}
