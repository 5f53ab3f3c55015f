package workspace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fairlead/fairlead/protocol"
)

func TestWrite(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "d/f=old", "link=->d/f", "out=->../outside", "new=->d/g", "far=->none/g", "../outside=secret", "folder=->d")
	w, err := s.Write("a/b", strings.NewReader("text"), WriteOptions{})
	if err != nil || !w.Created || w.Info.Path != "/a/b" || w.Info.Mode != "-rw-rw-r--" || content(t, dir+"/a/b") != "text" {
		t.Errorf("%+v, %v", w, err)
	}
	if e, err := s.Stat("a/b"); err != nil || e.ETag != w.Info.ETag {
		t.Errorf("%+v, %v", e, err)
	}
	w, err = s.Write("link", strings.NewReader("through"), WriteOptions{})
	if err != nil || w.Created || w.Info.Path != "/link" || content(t, dir+"/d/f") != "through" {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err = s.Write("new", strings.NewReader("x"), WriteOptions{}); err != nil || !w.Created || content(t, dir+"/d/g") != "x" {
		t.Errorf("%+v, %v", w, err)
	}
	for path, kind := range map[string]protocol.Kind{
		"out": protocol.KindInvalid, "far": protocol.KindNotFound, "/": protocol.KindInvalid, "a": protocol.KindConflict,
		"folder": protocol.KindConflict, "a/b/c": protocol.KindNotFound, "x/../y": protocol.KindInvalid,
	} {
		_, err := s.Write(path, strings.NewReader("bad"), WriteOptions{})
		wantKind(t, err, kind)
	}
	if content(t, dir+"/../outside") != "secret" {
		t.Error("a file outside was written")
	}
	wantPaths(t, stagedFiles(t, dir))
}

func TestAWriteThatFailsChangesNothing(t *testing.T) {
	s, dir := open(t, func(o *Options) { o.MaxFileBytes = 10 })
	put(t, dir, "f=old")
	_, err := s.Write("f", strings.NewReader("01234567890"), WriteOptions{})
	wantKind(t, err, protocol.KindTooLarge)
	_, err = s.Write("f", iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("abc"))), WriteOptions{})
	wantKind(t, err, protocol.KindInvalid)
	_, err = s.Write("f", iotest.ErrReader(io.ErrUnexpectedEOF), WriteOptions{})
	wantKind(t, err, protocol.KindInvalid)
	wantPaths(t, paths(t, s, "/", true), "/f")
	wantPaths(t, stagedFiles(t, dir))
	if content(t, dir+"/f") != "old" {
		t.Error("the old file has changed")
	}
	if _, err = s.Write("f", strings.NewReader("0123456789"), WriteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestConditions(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "f=old")
	e, err := s.Stat("f")
	want(t, err)
	write := func(path, match string, noReplace bool) error {
		_, err := s.Write(path, strings.NewReader("new"), WriteOptions{IfMatch: match, NoReplace: noReplace})
		return err
	}
	precondition := func(err error) {
		t.Helper()
		wantKind(t, err, protocol.KindConflict)
		if !errors.Is(err, ErrPrecondition) {
			t.Errorf("%v is not a failed condition", err)
		}
	}
	precondition(write("f", `"other"`, false))
	precondition(write("f", "", true))
	precondition(write("none", "*", false))
	precondition(write("no/folder", `"x"`, false))
	want(t, write("f", `"other", `+e.ETag, false))
	precondition(write("f", e.ETag, false)) // it is another one now
	want(t, write("f", "*", false))
	want(t, write("g", "", true))
	// Changed while the content came.
	e, err = s.Stat("g")
	want(t, err)
	late := readerFunc(func(p []byte) (int, error) {
		put(t, dir, "g=theirs")
		return copy(p, "mine"), io.EOF
	})
	_, err = s.Write("g", late, WriteOptions{IfMatch: e.ETag})
	precondition(err)
	late = func(p []byte) (int, error) {
		put(t, dir, "h=theirs")
		return copy(p, "mine"), io.EOF
	}
	_, err = s.Write("h", late, WriteOptions{NoReplace: true})
	precondition(err)
	if content(t, dir+"/g")+content(t, dir+"/h") != "theirstheirs" {
		t.Error("another's change was lost")
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	tmpfs(t, dir, "256k")
	s := reopen(t, dir)
	put(t, dir, "f=old")
	big := make([]byte, 1<<20)
	_, err := s.Write("f", bytes.NewReader(big), WriteOptions{})
	wantKind(t, err, protocol.KindNoSpace)
	_, err = s.Write("new", bytes.NewReader(big), WriteOptions{})
	wantKind(t, err, protocol.KindNoSpace)
	if content(t, dir+"/f") != "old" {
		t.Error("the old file has changed")
	}
	_, err = s.CreateUpload(UploadRequest{Path: "f", Size: 1 << 20})
	wantKind(t, err, protocol.KindNoSpace)
	wantPaths(t, stagedFiles(t, dir))
	up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 128 << 10})
	want(t, err)
	put(t, dir, "filler="+strings.Repeat("x", 150<<10))
	_, err = s.Append(up.ID, "", 0, bytes.NewReader(big[:128<<10]), nil)
	wantKind(t, err, protocol.KindNoSpace)
	up, err = s.Upload(up.ID, "")
	if err != nil || up.Offset == 0 || up.Offset >= 128<<10 {
		t.Errorf("%+v, %v", up, err)
	}
	want(t, os.Remove(dir+"/filler")) // it goes on where it was
	up, err = s.Append(up.ID, "", up.Offset, bytes.NewReader(big[up.Offset:128<<10]), nil)
	if err != nil || up.Done == nil || len(content(t, dir+"/f")) != 128<<10 {
		t.Errorf("%+v, %v", up, err)
	}
}

func TestAnotherFilesystemBelow(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "mount/")
	tmpfs(t, dir+"/mount", "1m")
	w, err := s.Write("mount/a/f", strings.NewReader("text"), WriteOptions{})
	if err != nil || !w.Created || content(t, dir+"/mount/a/f") != "text" {
		t.Errorf("%+v, %v", w, err)
	}
	_, err = s.Write("mount/a/f", strings.NewReader("x"), WriteOptions{NoReplace: true})
	wantKind(t, err, protocol.KindConflict)
	up, err := s.CreateUpload(UploadRequest{Path: "mount/a/f", Size: 3})
	want(t, err)
	_, err = s.Append(up.ID, "", 0, strings.NewReader("new"), nil)
	if err != nil || content(t, dir+"/mount/a/f") != "new" {
		t.Error(err)
	}
	put(t, dir, "g=x")
	_, err = s.Move("g", "mount/g", false)
	wantKind(t, err, protocol.KindUnsupported)
	wantKind(t, s.Delete(background, "mount"), protocol.KindConflict)
	wantPaths(t, paths(t, s, "mount", true))
}

func TestWhatACrashLeavesIsRemoved(t *testing.T) {
	_, dir := open(t)
	put(t, dir, Staging+"/w-half=x", Staging+"/w-folder/x=y", Staging+"/ORPHAN.part=x", Staging+"/BAD.json={", Staging+"/junk=x")
	reopen(t, dir)
	wantPaths(t, stagedFiles(t, dir))
}

func TestAForeignStagingFolderIsReplaced(t *testing.T) {
	for _, content := range []string{"=a file", "=->/tmp", "/x=y"} {
		dir := t.TempDir()
		put(t, dir, Staging+content)
		if content == "/x=y" {
			want(t, os.Chmod(dir+"/"+Staging, 0o777))
		}
		s := reopen(t, dir)
		_, err := s.Write("f", strings.NewReader("text"), WriteOptions{})
		want(t, err)
		wantPaths(t, stagedFiles(t, dir))
	}
}

func TestARemovedStagingFolderIsMadeAnew(t *testing.T) {
	s, dir := open(t)
	want(t, os.RemoveAll(dir+"/"+Staging))
	_, err := s.Write("f", strings.NewReader("text"), WriteOptions{})
	want(t, err)
}
