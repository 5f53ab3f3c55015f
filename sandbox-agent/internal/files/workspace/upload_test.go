package workspace

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func TestUpload(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/f=old")
	up, err := s.CreateUpload(UploadRequest{Path: "/a/f", Size: 10, Subject: "alice"})
	want(t, err)
	if up.Offset != 0 || up.Size != 10 || up.Path != "/a/f" || time.Until(up.Expires) < 23*time.Hour {
		t.Errorf("%+v", up)
	}
	up, err = s.Append(up.ID, "alice", 0, strings.NewReader("0123"), nil)
	if err != nil || up.Offset != 4 || up.Done != nil {
		t.Errorf("%+v, %v", up, err)
	}
	_, err = s.Append(up.ID, "alice", 0, strings.NewReader("0123"), nil)
	wantKind(t, err, protocol.KindConflict)
	// The connection breaks: what came is kept.
	_, err = s.Append(up.ID, "alice", 4, io.MultiReader(strings.NewReader("45"), iotest.ErrReader(io.ErrUnexpectedEOF)), nil)
	wantKind(t, err, protocol.KindInvalid)
	if up, err = s.Upload(up.ID, "alice"); err != nil || up.Offset != 6 {
		t.Errorf("%+v, %v", up, err)
	}
	_, err = s.Append(up.ID, "alice", 6, strings.NewReader("6789X"), nil)
	wantKind(t, err, protocol.KindTooLarge)
	if content(t, dir+"/a/f") != "old" {
		t.Error("the old file has changed")
	}
	up, err = s.Append(up.ID, "alice", 6, strings.NewReader("6789"), nil)
	if err != nil || up.Done == nil || up.Done.Created || content(t, dir+"/a/f") != "0123456789" {
		t.Errorf("%+v, %v", up, err)
	}
	// The answer may have been lost.
	if up, err = s.Upload(up.ID, "alice"); err != nil || up.Offset != 10 {
		t.Errorf("%+v, %v", up, err)
	}
	want(t, s.DropUpload(up.ID, "alice"))
	_, err = s.Upload(up.ID, "alice")
	wantKind(t, err, protocol.KindNotFound)
	wantPaths(t, stagedFiles(t, dir))
}

func TestUploadsSurviveARestart(t *testing.T) {
	s, dir := open(t)
	half, err := s.CreateUpload(UploadRequest{Path: "f", Size: 4, Subject: "alice"})
	want(t, err)
	_, err = s.Append(half.ID, "alice", 0, strings.NewReader("01"), nil)
	want(t, err)
	whole, err := s.CreateUpload(UploadRequest{Path: "g", Size: 2, Subject: "alice"})
	want(t, err)
	_, err = s.Append(whole.ID, "alice", 0, strings.NewReader("ab"), nil)
	want(t, err)
	put(t, dir, Staging+"/w-left=x")

	s = reopen(t, dir)
	if up, err := s.Upload(half.ID, "alice"); err != nil || up.Offset != 2 || up.Path != "/f" || up.Size != 4 {
		t.Errorf("%+v, %v", up, err)
	}
	if up, err := s.Upload(whole.ID, "alice"); err != nil || up.Offset != 2 {
		t.Errorf("%+v, %v", up, err)
	}
	if up, err := s.Append(half.ID, "alice", 2, strings.NewReader("23"), nil); err != nil || up.Done == nil || content(t, dir+"/f") != "0123" {
		t.Errorf("%+v, %v", up, err)
	}
	for _, name := range stagedFiles(t, dir) {
		if !strings.HasSuffix(name, stateSuffix) {
			t.Errorf("%s is left", name)
		}
	}
}

func TestUploadLimits(t *testing.T) {
	now := time.Now()
	s, dir := open(t, func(o *Options) { o.MaxUploads, o.MaxUploadBytes, o.UploadTTL = 2, 100, time.Hour })
	_, err := s.CreateUpload(UploadRequest{Path: "f", Size: 101})
	wantKind(t, err, protocol.KindTooLarge)
	_, err = s.CreateUpload(UploadRequest{Path: "f", Size: -1})
	wantKind(t, err, protocol.KindInvalid)
	_, err = s.CreateUpload(UploadRequest{Path: "../f", Size: 1})
	wantKind(t, err, protocol.KindInvalid)
	put(t, dir, "there=x")
	_, err = s.CreateUpload(UploadRequest{Path: "there", Size: 1, WriteOptions: WriteOptions{NoReplace: true}})
	wantKind(t, err, protocol.KindConflict)
	for range 5 { // those that are done make room
		up, err := s.CreateUpload(UploadRequest{Path: "empty"})
		if err != nil || up.Done == nil {
			t.Fatalf("%+v, %v", up, err)
		}
	}
	if n := len(stagedFiles(t, dir)); n > 2 {
		t.Errorf("%d files are kept of uploads that are done", n)
	}
	var ids []string
	for range 2 {
		up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 1})
		want(t, err)
		ids = append(ids, up.ID)
	}
	_, err = s.CreateUpload(UploadRequest{Path: "f", Size: 1})
	wantKind(t, err, protocol.KindTooMany)
	_, err = s.Upload(ids[0], "mallory")
	wantKind(t, err, protocol.KindNotFound)
	want(t, s.DropUpload(ids[0], ""))
	s.staging.expire(now.Add(59 * time.Minute))
	if _, err := s.Upload(ids[1], ""); err != nil {
		t.Error("expired early")
	}
	s.staging.expire(time.Now().Add(time.Hour))
	_, err = s.Upload(ids[1], "")
	wantKind(t, err, protocol.KindNotFound)
	wantPaths(t, stagedFiles(t, dir))
	// Also those of an earlier life.
	up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 1})
	want(t, err)
	old := now.Add(-2 * time.Hour)
	want(t, os.Chtimes(dir+"/"+Staging+"/"+up.ID+partSuffix, old, old))
	reopen(t, dir, func(o *Options) { o.UploadTTL = time.Hour })
	wantPaths(t, stagedFiles(t, dir))
}

func TestUploadChecksums(t *testing.T) {
	s, _ := open(t)
	up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 8})
	want(t, err)
	right := sha256.Sum256([]byte("0123"))
	_, err = s.Append(up.ID, "", 0, strings.NewReader("0124"), &Checksum{sha256.New(), right[:]})
	if !errors.Is(err, ErrChecksum) {
		t.Error(err)
	}
	_, err = s.Append(up.ID, "", 0, io.MultiReader(strings.NewReader("01"), iotest.ErrReader(io.ErrUnexpectedEOF)), &Checksum{sha256.New(), right[:]})
	wantKind(t, err, protocol.KindInvalid)
	if up, err = s.Upload(up.ID, ""); err != nil || up.Offset != 0 {
		t.Errorf("bytes that may be wrong were kept: %+v, %v", up, err)
	}
	up, err = s.Append(up.ID, "", 0, strings.NewReader("0123"), &Checksum{sha256.New(), right[:]})
	if err != nil || up.Offset != 4 {
		t.Errorf("%+v, %v", up, err)
	}
}

func TestOneRequestAtATimeAddsToAnUpload(t *testing.T) {
	s, _ := open(t)
	up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 4})
	want(t, err)
	_, err = s.Append(up.ID, "", 0, readerFunc(func(p []byte) (int, error) {
		_, err := s.Append(up.ID, "", 0, strings.NewReader("bad"), nil)
		wantKind(t, err, protocol.KindConflict)
		wantKind(t, s.DropUpload(up.ID, ""), protocol.KindConflict)
		return copy(p, "good"), io.EOF
	}), nil)
	want(t, err)
}

func TestAnUploadThatCannotTakeItsPlaceTriesAgain(t *testing.T) {
	s, dir := open(t)
	up, err := s.CreateUpload(UploadRequest{Path: "f", Size: 4})
	want(t, err)
	put(t, dir, "f/")
	_, err = s.Append(up.ID, "", 0, strings.NewReader("good"), nil)
	wantKind(t, err, protocol.KindConflict)
	want(t, os.Remove(dir+"/f"))
	up, err = s.Append(up.ID, "", 4, bytes.NewReader(nil), nil)
	if err != nil || up.Done == nil || content(t, dir+"/f") != "good" {
		t.Errorf("%+v, %v", up, err)
	}
}

func TestUploadsKeepTheirMetadata(t *testing.T) {
	s, dir := open(t)
	const metadata = "filename Zg==,kind\xff dGV4dA==, empty"
	half, err := s.CreateUpload(UploadRequest{Path: "f", Size: 4, Metadata: metadata})
	want(t, err)
	whole, err := s.CreateUpload(UploadRequest{Path: "g", Metadata: metadata})
	if err != nil || whole.Done == nil {
		t.Fatalf("%+v, %v", whole, err)
	}
	for range 2 {
		for _, id := range []string{half.ID, whole.ID} {
			if up, err := s.Upload(id, ""); err != nil || up.Metadata != metadata {
				t.Errorf("%+v, %v", up, err)
			}
		}
		s = reopen(t, dir)
	}
	_, err = s.CreateUpload(UploadRequest{Path: "f", Size: 4, Metadata: strings.Repeat("x", maxMetadataBytes+1)})
	wantKind(t, err, protocol.KindTooLarge)
	_, err = s.CreateUpload(UploadRequest{Path: "f", Size: 4, Metadata: strings.Repeat("\x01", maxMetadataBytes), Subject: strings.Repeat("\x01", 8<<10)})
	wantKind(t, err, protocol.KindTooLarge)
	if n := len(stagedFiles(t, dir)); n != 3 {
		t.Errorf("%d files are staged", n)
	}
}

func TestUploadConditions(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "f=old")
	e, err := s.Stat("f")
	want(t, err)
	_, err = s.CreateUpload(UploadRequest{Path: "f", Size: 1, WriteOptions: WriteOptions{IfMatch: `"other"`}})
	if !errors.Is(err, ErrPrecondition) {
		t.Error(err)
	}
	create := func(path string, o WriteOptions) string {
		t.Helper()
		up, err := s.CreateUpload(UploadRequest{Path: path, Size: 1, WriteOptions: o})
		want(t, err)
		return up.ID
	}
	met, lost, fresh := create("f", WriteOptions{IfMatch: e.ETag}), create("f", WriteOptions{IfMatch: e.ETag}), create("g", WriteOptions{NoReplace: true})
	s = reopen(t, dir) // the conditions are on disk
	if up, err := s.Append(met, "", 0, strings.NewReader("1"), nil); err != nil || up.Done == nil {
		t.Errorf("%+v, %v", up, err)
	}
	put(t, dir, "g=theirs")
	for _, id := range []string{lost, fresh} {
		_, err := s.Append(id, "", 0, strings.NewReader("2"), nil)
		wantKind(t, err, protocol.KindConflict)
		if !errors.Is(err, ErrPrecondition) {
			t.Error(err)
		}
		_, err = s.Upload(id, "")
		wantKind(t, err, protocol.KindNotFound)
	}
	if content(t, dir+"/f")+content(t, dir+"/g") != "1theirs" {
		t.Error("another's change was lost")
	}
	wantPaths(t, stagedFiles(t, dir), met+stateSuffix)
}
