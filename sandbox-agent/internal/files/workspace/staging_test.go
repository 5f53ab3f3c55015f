package workspace

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// A terminal moves the staging folder away and puts something in its place.
func TestUploadsOutliveAMovedStagingFolder(t *testing.T) {
	for _, there := range []string{"", Staging + "=a file", Staging + "=->../outside", Staging + "/theirs=x", Staging + "=->moved"} {
		s, dir := open(t)
		put(t, dir, "../outside/canary=x")
		half, err := s.CreateUpload(UploadRequest{Path: "f", Size: 4})
		want(t, err)
		_, err = s.Append(half.ID, "", 0, strings.NewReader("01"), nil)
		want(t, err)
		whole, err := s.CreateUpload(UploadRequest{Path: "g", Size: 1})
		want(t, err)
		_, err = s.Append(whole.ID, "", 0, strings.NewReader("x"), nil)
		want(t, err)
		want(t, os.Rename(filepath.Join(dir, Staging), filepath.Join(dir, "moved")))
		if there != "" {
			put(t, dir, there)
		}
		_, err = s.Write("h", strings.NewReader("x"), WriteOptions{}) // it is noticed
		want(t, err)
		if left, err := os.ReadDir(filepath.Join(dir, "moved")); err != nil || len(left) != 0 {
			t.Errorf("%q: %v is left in the moved folder, %v", there, left, err)
		}
		_, err = s.Stat("moved")
		wantKind(t, err, protocol.KindNotFound)

		s = reopen(t, dir)
		if up, err := s.Upload(whole.ID, ""); err != nil || up.Offset != 1 {
			t.Errorf("%q: %+v, %v", there, up, err)
		}
		up, err := s.Append(half.ID, "", 2, strings.NewReader("23"), nil)
		if err != nil || up.Done == nil || content(t, dir+"/f") != "0123" {
			t.Errorf("%q: %+v, %v", there, up, err)
		}
		wantPaths(t, namesIn(t, dir+"/../outside"), "canary")
		aside, err := filepath.Glob(filepath.Join(dir, asidePrefix+"*"))
		if err != nil || len(aside) != min(len(there), 1) {
			t.Fatalf("%q: %q are set aside, %v", there, aside, err)
		}
		if strings.HasPrefix(there, Staging+"/") {
			wantPaths(t, namesIn(t, aside[0]), "theirs")
		}
	}
}

func namesIn(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	want(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAStagingFolderThatMovesWhileBytesCome(t *testing.T) {
	s, dir := open(t)
	up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 4})
	want(t, err)
	moving := func(text, to string) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			want(t, os.Rename(filepath.Join(dir, Staging), filepath.Join(dir, to)))
			_, err := s.Write("other", strings.NewReader("x"), WriteOptions{})
			want(t, err)
			return copy(p, text), io.EOF
		})
	}
	_, err = s.Append(up.ID, "", 0, moving("01", "m1"), nil)
	want(t, err)
	wantPaths(t, stagedFiles(t, dir), up.ID+stateSuffix, up.ID+partSuffix)
	s = reopen(t, dir)
	up, err = s.Append(up.ID, "", 2, moving("23", "m2"), nil)
	if err != nil || up.Done == nil || content(t, dir+"/f") != "0123" {
		t.Errorf("%+v, %v", up, err)
	}
	wantPaths(t, stagedFiles(t, dir), up.ID+stateSuffix)
	// Without any request, Close notices it.
	want(t, os.Rename(filepath.Join(dir, Staging), filepath.Join(dir, "m3")))
	want(t, s.Close())
	if up, err := reopen(t, dir).Upload(up.ID, ""); err != nil || up.Offset != 4 {
		t.Errorf("%+v, %v", up, err)
	}
}

// An own folder under the name that isn't the staging folder is not used.
func TestAFolderInTheStagingFoldersPlaceIsKept(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "src/main=x")
	want(t, os.Chmod(filepath.Join(dir, "src"), 0o755))
	want(t, os.Rename(filepath.Join(dir, Staging), filepath.Join(dir, "moved")))
	want(t, os.Rename(filepath.Join(dir, "src"), filepath.Join(dir, Staging)))
	_, err := s.Write("f", strings.NewReader("x"), WriteOptions{})
	want(t, err)
	reopen(t, dir)
	aside, err := filepath.Glob(filepath.Join(dir, asidePrefix+"*"))
	if err != nil || len(aside) != 1 {
		t.Fatalf("%q, %v", aside, err)
	}
	wantPaths(t, namesIn(t, aside[0]), "main")
}

func TestFormerStagingFoldersAreBounded(t *testing.T) {
	s, dir := open(t)
	for range 3 * maxFormer {
		want(t, os.Rename(filepath.Join(dir, Staging), filepath.Join(t.TempDir(), "moved")))
		_, err := s.Write("f", strings.NewReader("x"), WriteOptions{})
		want(t, err)
	}
	if n := len(*s.staging.idents.Load()); n != maxFormer+1 {
		t.Errorf("%d folders are hidden", n)
	}
}

func TestAnUploadWithoutItsBytesEnds(t *testing.T) {
	s, dir := open(t)
	up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 4})
	want(t, err)
	want(t, os.Remove(filepath.Join(dir, Staging, up.ID+partSuffix)))
	_, err = s.Append(up.ID, "", 0, strings.NewReader("0123"), nil)
	wantKind(t, err, protocol.KindEnded)
	_, err = s.Upload(up.ID, "")
	wantKind(t, err, protocol.KindNotFound)
	wantPaths(t, stagedFiles(t, dir))
}
