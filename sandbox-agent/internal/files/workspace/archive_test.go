package workspace

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// unpack returns "name=content" of each entry.
func unpackTar(t testing.TB, b []byte) []string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(b))
	want(t, err)
	var all []string
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		want(t, err)
		text, err := io.ReadAll(r)
		want(t, err)
		if h.Typeflag == tar.TypeSymlink {
			text = []byte("->" + h.Linkname)
		}
		if h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s tells of its owner", h.Name)
		}
		all = append(all, h.Name+"="+string(text))
	}
}

func unpackZip(t testing.TB, b []byte) []string {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	want(t, err)
	var all []string
	for _, f := range r.File {
		c, err := f.Open()
		want(t, err)
		text, err := io.ReadAll(c)
		want(t, err)
		c.Close()
		all = append(all, f.Name+"="+string(text))
	}
	return all
}

func TestArchive(t *testing.T) {
	s, dir := open(t, func(o *Options) { o.Own = func(uint32) bool { return false } })
	long := strings.Repeat("long", 40)
	put(t, dir, "top/a/f=text", "top/empty/", "top/link=->a/f", "top/out=->/etc/passwd", "top/"+long+"=x", "top/secret=1234", "beside=no", "../outside=secret")
	want(t, unix.Mkfifo(filepath.Join(dir, "top/fifo"), 0o600))
	want(t, unix.Link(filepath.Join(dir, "../outside"), filepath.Join(dir, "top/hard")))
	mask := func(f *File) (io.Reader, int64, error) {
		if f.Name != "secret" {
			return nil, 0, nil
		}
		return strings.NewReader("***"), 3, nil
	}
	var packed bytes.Buffer
	want(t, s.Archive(background, "top", TarGz, mask, &packed))
	wantPaths(t, unpackTar(t, packed.Bytes()),
		"a/=", "a/f=text", "empty/=", "link=->a/f", long+"=x", "out=->/etc/passwd", "secret=***")
	packed.Reset()
	want(t, s.Archive(background, "top", Zip, mask, &packed))
	wantPaths(t, unpackZip(t, packed.Bytes()), "a/=", "a/f=text", "empty/=", long+"=x", "secret=***")
	packed.Reset()
	want(t, s.Archive(background, "/", TarGz, nil, &packed))
	if all := unpackTar(t, packed.Bytes()); !slices.Contains(all, "top/a/f=text") || strings.Contains(strings.Join(all, " "), Staging) {
		t.Errorf("%q", all)
	}
	wantKind(t, s.Archive(background, "beside", TarGz, nil, &packed), protocol.KindInvalid)
	_, err := s.Archivable("none")
	wantKind(t, err, protocol.KindNotFound)
	if e, err := s.Archivable("top"); err != nil || e.Name != "top" {
		t.Errorf("%+v, %v", e, err)
	}
}

// A file that shrinks while it is packed keeps the size that was announced.
func TestArchiveOfAShrinkingFile(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "f=0123456789")
	shrink := func(*File) (io.Reader, int64, error) { return strings.NewReader("0123"), 6, nil }
	var packed bytes.Buffer
	want(t, s.Archive(background, "/", TarGz, shrink, &packed))
	wantPaths(t, unpackTar(t, packed.Bytes()), "f=0123\x00\x00")
}
