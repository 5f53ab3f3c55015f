package workspace

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// What an upload keeps of its creation.
const (
	maxMetadataBytes  = 16 << 10
	maxConditionBytes = 4 << 10
)

// An UploadRequest says what is to be uploaded in pieces.
type UploadRequest struct {
	Path    string
	Size    int64  // of the whole, in bytes
	Subject string // who alone may go on with it
	WriteOptions
	Metadata string // kept as it is, at most 16 KiB
}

// CreateUpload makes an upload without bytes. An empty one takes its place at
// once. Over MaxUploadBytes is KindTooLarge, over what is free on the disk
// KindNoSpace, and over MaxUploads uploads KindTooMany. Its conditions must hold
// now, and again when it takes its place.
func (s *FS) CreateUpload(r UploadRequest) (UploadState, error) {
	clean, err := Clean(r.Path)
	if err != nil {
		return UploadState{}, err
	}
	switch {
	case r.Size < 0:
		return UploadState{}, protocol.Errorf(protocol.KindInvalid, "the size is negative")
	case r.Size > s.o.MaxUploadBytes:
		return UploadState{}, protocol.Errorf(protocol.KindTooLarge, "the file is over %d bytes", s.o.MaxUploadBytes)
	case len(r.Metadata) > maxMetadataBytes || len(r.IfMatch) > maxConditionBytes:
		return UploadState{}, protocol.Errorf(protocol.KindTooLarge, "the metadata or conditions are too long")
	}
	if err := s.foresee(clean, r.WriteOptions); err != nil {
		return UploadState{}, s.fault(err)
	}
	s.staging.expire(time.Now())
	u := &upload{
		id: rand.Text(), touched: time.Now(),
		state: uploadFile{
			Path: clean, Size: r.Size, Subject: r.Subject, NoReplace: r.NoReplace, IfMatch: r.IfMatch, Metadata: []byte(r.Metadata),
		},
	}
	if err := s.start(u); err != nil {
		return UploadState{}, s.fault(err)
	}
	if u.state.Size == 0 {
		return s.Append(u.id, r.Subject, 0, bytes.NewReader(nil), nil)
	}
	return u.progress(s.o.UploadTTL), nil
}

// start holds u, with its files.
func (s *FS) start(u *upload) error {
	d, err := s.staging.folder()
	if err != nil {
		return err
	}
	u.busy.Lock()
	defer u.busy.Unlock()
	u.dir = d
	if err := s.staging.admit(u); err != nil {
		return err
	}
	if err := u.begin(); err != nil {
		s.staging.forget(u)
		return err
	}
	return nil
}

// Upload returns how far the upload id of subject is.
func (s *FS) Upload(id, subject string) (UploadState, error) {
	u, err := s.staging.upload(id, subject)
	if err != nil {
		return UploadState{}, err
	}
	return u.progress(s.o.UploadTTL), nil
}

// Append adds what body holds to the upload id, of which offset bytes must be
// there: otherwise it is KindConflict, as it is when another call adds to it.
// Bytes that come before body or the disk fails are kept. The last one gives the
// file its place as [FS.Write] does; when that can't be done, an empty Append
// tries again. A condition of the upload that doesn't hold then is an
// [ErrPrecondition] and ends the upload: its bytes are dropped, since whoever
// reads its offset would take it for done. KindEnded says that somebody removed
// its bytes: it must begin anew.
func (s *FS) Append(id, subject string, offset int64, body io.Reader, sum *Checksum) (UploadState, error) {
	u, err := s.staging.upload(id, subject)
	if err != nil {
		return UploadState{}, err
	}
	if !u.busy.TryLock() {
		return UploadState{}, protocol.Errorf(protocol.KindConflict, "another request adds to this upload")
	}
	defer u.busy.Unlock()
	if at := u.progress(s.o.UploadTTL).Offset; at != offset {
		return UploadState{}, protocol.Errorf(protocol.KindConflict, "the upload is at offset %d", at)
	}
	if u.isDone() {
		return u.progress(s.o.UploadTTL), nil
	}
	s.staging.house(u)
	t, err := s.resume(u)
	if err != nil {
		return UploadState{}, s.fault(err)
	}
	defer s.staging.house(u) // its folder may be moved while the bytes come
	defer func() { t.f.Close() }()
	if err := u.extend(t.f, offset, body, sum); err != nil {
		return UploadState{}, s.fault(err)
	}
	state := u.progress(s.o.UploadTTL)
	if state.Offset == state.Size {
		w, err := s.putUpload(t, u)
		if err != nil {
			return UploadState{}, s.fault(err)
		}
		state.Done = &w
	}
	return state, nil
}

// resume opens the bytes of u. u.busy is held.
func (s *FS) resume(u *upload) (*staged, error) {
	name := u.id + partSuffix
	f, err := u.dir.open(name, unix.O_RDWR, 0)
	if errors.Is(err, unix.ENOENT) {
		s.staging.forget(u)
		err = protocol.Errorf(protocol.KindEnded, "the bytes of this upload are gone: it must begin anew")
	}
	return &staged{f: f, dir: u.dir, name: name}, err
}

// putUpload gives t, the bytes of u, its place. u.busy is held.
func (s *FS) putUpload(t *staged, u *upload) (Written, error) {
	w, err := s.put(t, u.state.Path, WriteOptions{IfMatch: u.state.IfMatch, NoReplace: u.state.NoReplace})
	switch {
	case err == nil:
		s.finish(t.dir, u)
	case errors.Is(err, ErrPrecondition):
		s.staging.forget(u)
	}
	return w, err
}

// finish notes that u is done, for a caller who lost the answer and asks again.
func (s *FS) finish(d folder, u *upload) {
	u.mu.Lock()
	u.done = true
	u.mu.Unlock()
	if err := d.sync(); err != nil {
		s.o.Logger.Warn("the staging folder can't be synced", "err", err)
	}
}

// DropUpload forgets the upload id and removes its bytes.
func (s *FS) DropUpload(id, subject string) error {
	u, err := s.staging.upload(id, subject)
	if err != nil {
		return err
	}
	if !u.busy.TryLock() {
		return protocol.Errorf(protocol.KindConflict, "another request adds to this upload")
	}
	defer u.busy.Unlock()
	s.staging.forget(u)
	return nil
}
