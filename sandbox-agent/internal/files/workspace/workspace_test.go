package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

var background = context.Background()

func TestStat(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/f=12345", "a/link=->f", "out=->/etc")
	want(t, os.Chmod(filepath.Join(dir, "a/f"), 0o640))
	e, err := s.Stat("a/f")
	if err != nil || e.Name != "f" || e.Path != "/a/f" || e.Type != protocol.FileRegular || e.Size != 5 || e.Mode != "-rw-r-----" || e.ETag == "" || e.IsDir {
		t.Errorf("%+v, %v", e, err)
	}
	if at, err := time.Parse(time.RFC3339, e.ModTime); err != nil || time.Since(at) > time.Minute {
		t.Errorf("mod_time %q", e.ModTime)
	}
	if e, err := s.Stat("/a"); err != nil || e.Type != protocol.FileDir || !e.IsDir || e.Path != "/a" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := s.Stat("/"); err != nil || !e.IsDir || e.Path != "/" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := s.Stat("out"); err != nil || e.Type != protocol.FileSymlink || e.Target != "/etc" || e.IsDir {
		t.Errorf("%+v, %v", e, err)
	}
	_, err = s.Stat("out/passwd")
	wantKind(t, err, protocol.KindInvalid)
	_, err = s.Stat("none")
	wantKind(t, err, protocol.KindNotFound)
	_, err = s.Stat("a/f/x")
	wantKind(t, err, protocol.KindNotFound)
}

func TestModes(t *testing.T) {
	for mode, want := range map[uint32]string{
		unix.S_IFREG | 0o644: "-rw-r--r--", unix.S_IFDIR | 0o2775: "drwxrwsr-x", unix.S_IFDIR | 0o1777: "drwxrwxrwt",
		unix.S_IFREG | 0o4755: "-rwsr-xr-x", unix.S_IFREG | 0o6644: "-rwSr-Sr--", unix.S_IFIFO | 0o600: "prw-------",
		unix.S_IFLNK | 0o777: "lrwxrwxrwx", unix.S_IFDIR | 0o1770: "drwxrwx--T", 0: "?---------",
	} {
		if got := lsMode(mode); got != want {
			t.Errorf("%o is %s, want %s", mode, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/f=text", "link=->a/f", "up=->a/../a/f", "out=->../outside", "abs=->"+dir+"/a/f", "loop=->loop", "../outside=secret")
	for _, path := range []string{"a/f", "/a/f", "link", "up", "abs"} {
		if text, err := read(s, path); text != "text" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	for _, path := range []string{"out", "loop", "a", "/", "a/../a/f", "a/f/", "link/"} {
		_, err := read(s, path)
		wantKind(t, err, protocol.KindInvalid)
	}
	for _, path := range []string{"none", "a/f/none", Staging, Staging + "/x"} {
		_, err := read(s, path)
		wantKind(t, err, protocol.KindNotFound)
	}
	f, err := s.Open("link")
	want(t, err)
	defer f.Close()
	if f.Name != "f" || f.Info.Name != "link" {
		t.Errorf("%q, %q", f.Name, f.Info.Name)
	}
}

func TestNothingReadsTheStagingFolder(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "folder=->"+Staging, "inner=->"+Staging+"/w-x", Staging+"/w-x=secret", "f=1")
	wantPaths(t, paths(t, s, "/", true), "/f", "/folder", "/inner")
	for _, path := range []string{"folder/w-x", "inner"} {
		_, err := read(s, path)
		wantKind(t, err, protocol.KindNotFound)
	}
	wantKind(t, s.List(background, "folder", true, func(protocol.FileInfo) error { return nil }), protocol.KindNotFound)
	wantKind(t, s.Delete(background, "folder/w-x"), protocol.KindNotFound)
	_, err := s.Move("folder/w-x", "mine", false)
	wantKind(t, err, protocol.KindNotFound)
	_, err = s.Write("folder/x", strings.NewReader("x"), WriteOptions{})
	wantKind(t, err, protocol.KindNotFound)
	want(t, os.Rename(filepath.Join(dir, Staging), filepath.Join(dir, "moved")))
	wantKind(t, s.Delete(background, "moved"), protocol.KindNotFound)
	put(t, dir, "to=->moved/w-x")
	for _, path := range []string{"moved/w-x", "to"} {
		_, err = read(s, path)
		wantKind(t, err, protocol.KindNotFound)
	}
	want(t, os.Remove(dir+"/to"))
	wantPaths(t, paths(t, s, "/", true), "/f", "/folder", "/inner")
	_, err = s.Write("g", strings.NewReader("x"), WriteOptions{}) // it works where it is
	want(t, err)
}

func TestSpecialFilesDoNotBlock(t *testing.T) {
	s, dir := open(t)
	want(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	want(t, err)
	defer unix.Close(fd)
	t.Chdir(dir) // the path of a socket must be short
	want(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))
	put(t, dir, "link=->fifo")
	names := []string{"fifo", "socket", "link"}
	if unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) == nil {
		names = append(names, "device")
	}
	for _, name := range names {
		stuck := time.AfterFunc(stuckAfter, func() { panic(name + " blocks") })
		_, err := read(s, name)
		wantKind(t, err, protocol.KindInvalid)
		_, err = s.Write(name, strings.NewReader("x"), WriteOptions{})
		wantKind(t, err, protocol.KindConflict)
		wantKind(t, s.List(background, name, false, nil), protocol.KindInvalid)
		_, err = s.Watch(name, true)
		wantKind(t, err, protocol.KindInvalid)
		stuck.Stop()
	}
	var archived strings.Builder
	want(t, s.Archive(background, "/", Zip, nil, &archived))
	for _, name := range names {
		if e, err := s.Stat(name); err != nil || (e.Type != protocol.FileOther && e.Type != protocol.FileSymlink) {
			t.Errorf("%+v, %v", e, err)
		}
		want(t, s.Delete(background, name))
	}
}

func TestAHardLinkToSomebodyElsesFileIsRefused(t *testing.T) {
	s, dir := open(t, func(o *Options) { o.Own = func(uint32) bool { return false } })
	put(t, dir, "../outside=secret", "f=mine")
	want(t, os.Link(filepath.Join(dir, "../outside"), filepath.Join(dir, "hard")))
	_, err := read(s, "hard")
	wantKind(t, err, protocol.KindForbidden)
	_, err = s.Write("hard", strings.NewReader("x"), WriteOptions{})
	wantKind(t, err, protocol.KindForbidden)
	if text, err := read(s, "f"); text != "mine" || err != nil {
		t.Errorf("one name: %q, %v", text, err)
	}
	want(t, s.Delete(background, "hard"))
	if content(t, filepath.Join(dir, "../outside")) != "secret" {
		t.Error("the file outside has changed")
	}
	own, dir := open(t, func(o *Options) { o.Own = func(uid uint32) bool { return int(uid) == os.Getuid() } })
	put(t, dir, "f=mine")
	want(t, os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "g")))
	if text, err := read(own, "g"); text != "mine" || err != nil {
		t.Errorf("an own one: %q, %v", text, err)
	}
}

func TestList(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "b/2=x", "b/1/deep=x", "a=x", "c=->b", "b/.hidden=x", tempPrefix+"x=x")
	wantPaths(t, paths(t, s, "/", false), "/a", "/b", "/c")
	wantPaths(t, paths(t, s, "/", true), "/a", "/b", "/b/.hidden", "/b/1", "/b/1/deep", "/b/2", "/c")
	wantPaths(t, paths(t, s, "c", false), "/c/.hidden", "/c/1", "/c/2")
	none := func(protocol.FileInfo) error { return nil }
	wantKind(t, s.List(background, "a", false, none), protocol.KindInvalid)
	wantKind(t, s.List(background, "none", false, none), protocol.KindNotFound)
	ctx, cancel := context.WithCancel(background)
	cancel()
	wantKind(t, s.List(ctx, "/", false, none), protocol.KindUnavailable)
	mine := errors.New("enough")
	if err := s.List(background, "/", false, func(protocol.FileInfo) error { return mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	small := reopen(t, dir, func(o *Options) { o.MaxEntries = 6 })
	wantKind(t, small.List(background, "/", true, none), protocol.KindTooLarge)
	wantPaths(t, paths(t, small, "/b", true), "/b/.hidden", "/b/1", "/b/1/deep", "/b/2")
}

func TestDeepFolders(t *testing.T) {
	s, dir := open(t)
	at := dir
	for range maxDepth - 1 {
		at += "/d"
	}
	want(t, os.MkdirAll(at, 0o775))
	if n := len(paths(t, s, "/", true)); n != maxDepth-1 {
		t.Errorf("%d folders", n)
	}
	want(t, s.Delete(background, "d"))
	want(t, os.MkdirAll(at+"/d/d/d", 0o775))
	wantKind(t, s.List(background, "/", true, func(protocol.FileInfo) error { return nil }), protocol.KindTooLarge)
	wantKind(t, s.Delete(background, "d"), protocol.KindTooLarge)
}

func TestDelete(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/b/c=x", "a/d=x", "a/out=->../../outside", "f=x", "link=->f", "folder=->a", "../outside/canary=x", "loose=->../outside")
	want(t, s.Delete(background, "link"))
	wantPaths(t, paths(t, s, "/", false), "/a", "/f", "/folder", "/loose")
	want(t, s.Delete(background, "folder"))
	want(t, s.Delete(background, "loose"))
	want(t, s.Delete(background, "a"))
	wantPaths(t, paths(t, s, "/", true), "/f")
	if content(t, filepath.Join(dir, "../outside/canary")) != "x" {
		t.Error("a symlink was followed")
	}
	wantKind(t, s.Delete(background, "a"), protocol.KindNotFound)
	wantKind(t, s.Delete(background, "/"), protocol.KindInvalid)
	wantKind(t, s.Delete(background, "f/"), protocol.KindInvalid)
	wantKind(t, s.Delete(background, Staging), protocol.KindNotFound)
	put(t, dir, "g/h=x")
	ctx, cancel := context.WithCancel(background)
	cancel()
	wantKind(t, s.Delete(ctx, "g"), protocol.KindUnavailable)
}

func TestMkdir(t *testing.T) {
	s, dir := open(t)
	e, made, err := s.Mkdir("/a/b/c")
	if err != nil || !made || e.Path != "/a/b/c" || e.Mode != "drwxrwsr-x" {
		t.Errorf("%+v, %v, %v", e, made, err)
	}
	if _, made, err := s.Mkdir("a/b"); err != nil || made {
		t.Errorf("again: %v, %v", made, err)
	}
	put(t, dir, "f=x", "link=->a", "out=->..")
	if _, made, err := s.Mkdir("link/x"); err != nil || !made {
		t.Errorf("through a symlink: %v, %v", made, err)
	}
	_, _, err = s.Mkdir("f")
	wantKind(t, err, protocol.KindConflict)
	_, _, err = s.Mkdir("f/x")
	wantKind(t, err, protocol.KindConflict)
	_, _, err = s.Mkdir("out/x")
	wantKind(t, err, protocol.KindInvalid)
	wantPaths(t, paths(t, s, "a", true), "/a/b", "/a/b/c", "/a/x")
	wantPaths(t, stagedFiles(t, dir))
}

func TestMove(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "f=1", "g=2", "d/x=3", "e/", "full/y=4", "link=->f", "out=->..")
	_, err := s.Move("f", "g", false)
	wantKind(t, err, protocol.KindConflict)
	if e, err := s.Move("f", "g", true); err != nil || e.Path != "/g" || content(t, dir+"/g") != "1" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := s.Move("g", "new/folder/g", false); err != nil || e.Size != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := s.Move("link", "new/link", false); err != nil || e.Type != protocol.FileSymlink || e.Target != "f" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := s.Move("d", "e", true); err != nil || content(t, dir+"/e/x") != "3" {
		t.Error(err)
	}
	_, err = s.Move("e", "e/inner", false)
	wantKind(t, err, protocol.KindInvalid)
	put(t, dir, "alias=->e")
	_, err = s.Move("e", "alias/inner", false)
	wantKind(t, err, protocol.KindInvalid)
	_, err = s.Move("e", "full", true)
	wantKind(t, err, protocol.KindConflict)
	_, err = s.Move("e", "new/folder/g", true)
	wantKind(t, err, protocol.KindConflict)
	_, err = s.Move("new/folder/g", "full", true)
	wantKind(t, err, protocol.KindConflict)
	for _, path := range []string{"/", "out/x", "a/../b"} {
		_, err = s.Move(path, "z", false)
		wantKind(t, err, protocol.KindInvalid)
		_, err = s.Move("e", path, false)
		wantKind(t, err, protocol.KindInvalid)
	}
	_, err = s.Move("none", "z", false)
	wantKind(t, err, protocol.KindNotFound)
}

func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	s, dir := open(t)
	put(t, dir, "theirs/f=x")
	want(t, os.Chown(dir+"/theirs", 20001, 20000))
	want(t, os.Chown(dir+"/theirs/f", 20002, 20000))
	want(t, os.Chmod(dir+"/theirs/f", 0o750))
	for _, path := range []string{"theirs/new/f", "theirs/f"} {
		_, err := s.Write(path, strings.NewReader("y"), WriteOptions{})
		want(t, err)
	}
	for path, expect := range map[string][3]uint32{
		"theirs/new": {20001, 20000, 0o2775}, "theirs/new/f": {20001, 20000, 0o664}, "theirs/f": {20002, 20000, 0o750},
	} {
		var st syscall.Stat_t
		want(t, syscall.Lstat(filepath.Join(dir, path), &st))
		if got := [3]uint32{st.Uid, st.Gid, st.Mode & 0o7777}; got != expect {
			t.Errorf("%s: %d:%d %o, want %d:%d %o", path, got[0], got[1], got[2], expect[0], expect[1], expect[2])
		}
	}
}

// What comes by REST into a folder of root must be a terminal's: those can
// neither chmod nor link another's file without locking it.
func TestOwnersBelowForeignFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	owner, known := 20005, true
	s, dir := open(t, func(o *Options) {
		o.Own = func(uid uint32) bool { return uid >= 20000 && uid < 20010 }
		o.Owner = func() (int, bool) { return owner, known }
	})
	want(t, os.Chown(dir, 0, 20000))
	put(t, dir, "old=x", "theirs/")
	want(t, os.Chown(dir+"/theirs", 20001, 20000))
	wantOwner := func(path string, uid, gid uint32) {
		t.Helper()
		var st syscall.Stat_t
		want(t, syscall.Lstat(filepath.Join(dir, path), &st))
		if st.Uid != uid || st.Gid != gid {
			t.Errorf("%s: %d:%d, want %d:%d", path, st.Uid, st.Gid, uid, gid)
		}
	}
	_, _, err := s.Mkdir("made/inner")
	want(t, err)
	for _, path := range []string{"f", "dir/f", "theirs/f", "old"} {
		_, err := s.Write(path, strings.NewReader("x"), WriteOptions{})
		want(t, err)
	}
	up, err := s.CreateUpload(UploadRequest{Path: "up/f", Size: 1})
	want(t, err)
	_, err = s.Append(up.ID, "", 0, strings.NewReader("x"), nil)
	want(t, err)
	for _, path := range []string{"made", "made/inner", "f", "dir", "dir/f", "up", "up/f"} {
		wantOwner(path, 20005, 20000)
	}
	wantOwner("theirs/f", 20001, 20000)
	wantOwner("old", 0, 0) // what is replaced keeps its owner
	want(t, os.Link(dir+"/f", dir+"/linked"))
	if text, err := read(s, "f"); text != "x" || err != nil {
		t.Errorf("a link locks it: %q, %v", text, err)
	}
	_, err = s.Write("linked", strings.NewReader("y"), WriteOptions{})
	want(t, err)
	for _, owner = range []int{-1, 20005} {
		known = owner < 0
		_, err = s.Write("g", strings.NewReader("x"), WriteOptions{NoReplace: true})
		want(t, err)
		wantOwner("g", 0, 20000)
		want(t, os.Remove(dir+"/g"))
	}
}
