package passwd

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func entry(uid int) Entry {
	return Entry{UID: uid, GID: 2000, Home: "/homes/pty_" + strconv.Itoa(uid), Shell: "/bin/bash"}
}

// newFile returns a list with text in a folder of its own.
func newFile(t *testing.T, text string) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "passwd")
	must(t, os.WriteFile(path, []byte(text), 0o644))
	f, err := Open(path)
	must(t, err)
	return f, path
}

const others = "root:x:0:0:root:/root:/bin/bash\n\n# a comment\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"

// TestEveryOtherByteStays: whatever the list is, with our lines and without them
// it is the same otherwise.
func TestEveryOtherByteStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{
			"root:x:0:0:root:/root:/bin/bash", "+::::::", "", "\xff\xfe:\r", "sandbox-2001:x:2001:2000:somebody else:/home/s:/bin/sh",
			"sandbox-7:*:2002:2000:fairlead terminal:/h:/s", "x:y:z", ":::::::::", "a:x:2003:",
		}), 0, 8).Draw(t, "lines")
		whole := []byte(strings.Join(text, "\n"))
		if rapid.Bool().Draw(t, "ended") {
			whole = append(whole, '\n')
		}
		before := bytes.Clone(whole)
		now := whole
		for _, uid := range rapid.SliceOfN(rapid.IntRange(2001, 2006), 0, 8).Draw(t, "uids") {
			next, err := with(now, entry(uid))
			taken := uid == 2001 && bytes.Contains(before, []byte("sandbox-2001")) ||
				uid == 2002 && bytes.Contains(before, []byte("sandbox-7")) || uid == 2003 && bytes.Contains(before, []byte("a:x:2003"))
			if (err != nil) != taken {
				t.Fatalf("uid %d in %q: %v", uid, now, err)
			}
			if err == nil {
				now = next
				if !slices.Contains(owned(now), uid) || len(owned(now)) != len(slices.Compact(slices.Sorted(slices.Values(owned(now))))) {
					t.Fatalf("%d: ours are %v", uid, owned(now))
				}
			}
		}
		for _, uid := range owned(now) {
			now = without(now, uid)
		}
		if !bytes.Equal(now, before) || !bytes.Equal(whole, before) {
			t.Fatalf("%q became %q", before, now)
		}
	})
}

// TestEntries: an entry is what its terminal is now, and is gone with it; mode
// and owner of the list stay.
func TestEntries(t *testing.T) {
	f, path := newFile(t, others)
	must(t, os.Chmod(path, 0o604))
	if os.Geteuid() == 0 {
		must(t, os.Chown(path, 12, 34))
	}
	must(t, f.Set(entry(2001)))
	must(t, f.Set(entry(2002)))
	moved := entry(2001)
	moved.Home = "/homes/pty_other"
	must(t, f.Set(moved)) // an earlier life's, left over
	text, err := os.ReadFile(path)
	must(t, err)
	want := others + "sandbox-2002:*:2002:2000:fairlead terminal:/homes/pty_2002:/bin/bash\n" +
		"sandbox-2001:*:2001:2000:fairlead terminal:/homes/pty_other:/bin/bash\n"
	if string(text) != want {
		t.Errorf("%q", text)
	}
	if uids, err := f.UIDs(); err != nil || !slices.Equal(uids, []int{2002, 2001}) {
		t.Errorf("%v, %v", uids, err)
	}
	must(t, f.Remove(2001))
	must(t, f.Remove(2002))
	must(t, f.Remove(2003)) // there is none
	if text, err = os.ReadFile(path); err != nil || string(text) != others {
		t.Errorf("%q, %v", text, err)
	}
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	if st.Mode&0o7777 != 0o604 || os.Geteuid() == 0 && (st.Uid != 12 || st.Gid != 34) {
		t.Errorf("mode %o, owner %d:%d", st.Mode, st.Uid, st.Gid)
	}
	for _, bad := range []Entry{{UID: 0, Home: "/", Shell: "/s"}, {UID: 2004, Home: "/a:0:0", Shell: "/s"}, {UID: 2004, Home: "/a\nx", Shell: "/s"}} {
		if err := f.Set(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestLeftOverFile: what a killed agent was about to write is replaced, and not
// followed where somebody has put a link there.
func TestLeftOverFile(t *testing.T) {
	f, path := newFile(t, others)
	target := filepath.Join(t.TempDir(), "target")
	must(t, os.WriteFile(target, []byte("mine"), 0o600))
	must(t, os.Symlink(target, filepath.Join(filepath.Dir(path), nextName)))
	must(t, f.Set(entry(2001)))
	if text, err := os.ReadFile(target); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	text, err := os.ReadFile(path)
	if uids := owned(text); err != nil || !slices.Equal(uids, []int{2001}) {
		t.Errorf("%q, %v", text, err)
	}
}

// TestManyAtOnce: nobody's entry is lost when several programs, each with a File
// of its own, change the list together.
func TestManyAtOnce(t *testing.T) {
	_, path := newFile(t, others)
	var writers sync.WaitGroup
	for i := range 4 {
		f, err := Open(path)
		must(t, err)
		writers.Go(func() {
			for uid := 2000 + 100*i; uid < 2000+100*i+8; uid++ {
				if err := f.Set(entry(uid)); err != nil {
					t.Error(err)
				}
				if uid%2 == 0 {
					if err := f.Remove(uid); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	text, err := os.ReadFile(path)
	must(t, err)
	if uids := owned(text); len(uids) != 16 || !bytes.HasPrefix(text, []byte(others)) {
		t.Errorf("%d entries in %q", len(uids), text)
	}
}
