package homefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is what only a hang reaches.
const patience = time.Minute

func open(t *testing.T, dir string) *Home {
	t.Helper()
	h, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHostileFiles: what is no file of the home's user isn't read, and nobody
// waits for it.
func TestHostileFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	h := open(t, dir)
	write(t, outside+"/secret", "secret")
	write(t, dir+"/good", "good")
	for _, err := range []error{
		unix.Mkfifo(dir+"/fifo", 0o666),
		os.Symlink(outside+"/secret", dir+"/link"), os.Symlink("good", dir+"/inside"),
		os.Symlink(outside, dir+"/folder"), os.Mkdir(dir+"/dir", 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fifo", "link", "inside", "folder/secret", "dir", "../" + filepath.Base(outside) + "/secret", outside + "/secret", "none"} {
		if content, _, err := h.Read(name, 100); err == nil {
			t.Errorf("%s holds %q", name, content)
		}
	}
	if content, stat, err := h.Read("good", 100); string(content) != "good" || stat.Size != 4 || err != nil {
		t.Error(content, stat, err)
	}
	if _, _, err := h.Read("good", 3); err == nil {
		t.Error("a file longer than the limit")
	}
	if os.Geteuid() == 0 {
		write(t, dir+"/other", "other")
		if err := os.Chown(dir+"/other", 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.Read("other", 100); !errors.Is(err, ErrNotOurs) {
			t.Errorf("another user's file: %v", err)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	for _, name := range []string{"a/b/1.jsonl", "a/c/2.jsonl", "a/c/3.txt", "a/4.jsonl", "x/b/5.jsonl"} {
		write(t, filepath.Join(dir, name), "")
	}
	if err := os.Symlink("c", dir+"/a/linked"); err != nil {
		t.Fatal(err)
	}
	found := h.Find("a/*/*.jsonl", 10)
	if slices.Sort(found); !slices.Equal(found, []string{"a/b/1.jsonl", "a/c/2.jsonl"}) {
		t.Error(found)
	}
	if found := h.Find("a/*/*.jsonl", 1); len(found) != 1 {
		t.Error(found)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	if err := h.Write("a/b/c", strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	if content, _, err := h.Read("a/b/c", 100); string(content) != "content" || err != nil {
		t.Error(content, err)
	}
	if err := h.Write("a/b/c", strings.NewReader("other")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("what is there is written: %v", err)
	}
	if found := h.Find("a/b/*", 10); len(found) != 1 {
		t.Errorf("left behind: %v", found)
	}
}

// A listener keeps what it is told.
type listener chan string

func (l listener) Changed(_ *Home, name string) {
	select {
	case l <- name:
	default:
	}
}

// A watched is a Watcher with what it tells.
type watched struct {
	*Watcher
	told listener
}

func watchHome(t *testing.T, h *Home, patterns ...string) watched {
	t.Helper()
	told := make(listener, 1000)
	w, err := NewWatcher(told)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	w.Add(h, patterns)
	return watched{w, told}
}

// await waits until name is told.
func (w watched) await(t *testing.T, name string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case told := <-w.told:
			if strings.HasSuffix(told, ".txt") {
				t.Errorf("%s is told", told)
			}
			if told == name {
				return
			}
		case <-deadline:
			t.Fatalf("%s isn't told", name)
		}
	}
}

// TestWatch: files are told of, also those in folders that come later, as far as a
// pattern names them.
// It is about weakness 23 in deploy/e2e/README.md.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	write(t, dir+"/.codex/sessions/old.jsonl", "")
	w := watchHome(t, h, ".claude/projects/*/*.jsonl", ".codex/sessions/*.jsonl")
	write(t, dir+"/.claude/projects/-work/1.txt", "x")
	write(t, dir+"/.claude/projects/-work/1.jsonl", "x")
	w.await(t, ".claude/projects/-work/1.jsonl")
	write(t, dir+"/.codex/sessions/old.jsonl", "more")
	w.await(t, ".codex/sessions/old.jsonl")
	if err := os.Remove(dir + "/.codex/sessions/old.jsonl"); err != nil {
		t.Fatal(err)
	}
	w.await(t, ".codex/sessions/old.jsonl")
	// A folder that takes the place of another one is watched, too.
	if err := os.Rename(dir+"/.claude", dir+"/.gone"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/.claude/projects/-work/2.jsonl", "x")
	w.await(t, ".claude/projects/-work/2.jsonl")
}

// TestWatchBounds: folders beyond the bound aren't watched, which counts.
func TestWatchBounds(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	for i := range maxFolders + 10 {
		if err := os.Mkdir(filepath.Join(dir, "d"+strings.Repeat("x", i%100)+string(rune('a'+i/100))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := watchHome(t, h, "*/*.jsonl")
	if missed := w.Missed(); missed != 11 { // the home counts, too
		t.Errorf("%d folders aren't watched", missed)
	}
	w.Remove(h)
}
