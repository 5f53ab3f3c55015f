package workspace

import (
	"bytes"
	"crypto/rand"
	"errors"
	"hash"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// Names of an upload's files in the staging folder.
const (
	partSuffix  = ".part"
	stateSuffix = ".json"
)

// An UploadRequest says what is to be uploaded in pieces.
type UploadRequest struct {
	Path    string
	Size    int64  // of the whole, in bytes
	Subject string // who alone may go on with it
	WriteOptions
	Metadata string // kept as it is, at most 16 KiB
}

// An UploadState is how far an upload is.
type UploadState struct {
	ID       string
	Path     string // "/…"
	Size     int64
	Offset   int64 // of the next byte; Size when the file has its place, or could take it
	Metadata string
	Expires  time.Time
	Done     *Written // by this call
}

// A Checksum is what the bytes of one Append must come to. When they don't they
// are dropped.
type Checksum struct {
	Hash hash.Hash
	Sum  []byte
}

// ErrChecksum is in the chain of a KindInvalid error: the bytes are not what
// their checksum says.
var ErrChecksum = errors.New("the bytes are not what their checksum says")

// An upload is a file that comes in pieces. Its bytes so far are on disk as
// <id>.part, and what it is to become is <id>.json: that alone means that it has
// its place.
type upload struct {
	// Static after construction.
	id    string
	state uploadFile

	busy sync.Mutex // held, with TryLock, by who works on its files
	dir  folder     // guarded by busy: where they are

	mu      sync.Mutex
	offset  int64     // guarded by mu
	touched time.Time // guarded by mu: when its last byte came
	done    bool      // guarded by mu
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
	s.expire(time.Now())
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
	return s.uploadState(u), nil
}

// start holds u, with its files.
func (s *FS) start(u *upload) error {
	d, err := s.stagingFolder()
	if err != nil {
		return err
	}
	u.dir = d
	u.busy.Lock()
	defer u.busy.Unlock()
	if err := s.admit(u); err != nil {
		return err
	}
	err = u.begin()
	if err != nil {
		s.forget(u)
	}
	return err
}

// begin makes u's files.
func (u *upload) begin() error {
	d := u.dir
	var disk unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd(), &disk) }); err != nil {
		return err
	}
	if free := disk.Bavail * uint64(disk.Bsize); uint64(u.state.Size) > free {
		return unix.ENOSPC
	}
	f, err := d.open(u.id+partSuffix, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	return saveUpload(d, u.id, u.state)
}

// Upload returns how far the upload id of subject is.
func (s *FS) Upload(id, subject string) (UploadState, error) {
	u, err := s.held(id, subject)
	if err != nil {
		return UploadState{}, err
	}
	return s.uploadState(u), nil
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
	u, err := s.held(id, subject)
	if err != nil {
		return UploadState{}, err
	}
	if !u.busy.TryLock() {
		return UploadState{}, protocol.Errorf(protocol.KindConflict, "another request adds to this upload")
	}
	defer u.busy.Unlock()
	if at := s.uploadState(u).Offset; at != offset {
		return UploadState{}, protocol.Errorf(protocol.KindConflict, "the upload is at offset %d", at)
	}
	if u.isDone() {
		return s.uploadState(u), nil
	}
	s.house(u)
	t, err := s.resume(u)
	if err != nil {
		return UploadState{}, s.fault(err)
	}
	defer s.house(u) // its folder may be moved while the bytes come
	defer func() { t.f.Close() }()
	if err := s.extend(u, t.f, offset, body, sum); err != nil {
		return UploadState{}, s.fault(err)
	}
	state := s.uploadState(u)
	if state.Offset == state.Size {
		w, err := s.putUpload(t, u)
		if err != nil {
			return UploadState{}, s.fault(err)
		}
		state.Done = &w
	}
	return state, nil
}

// resume opens the bytes of u.
func (s *FS) resume(u *upload) (*staged, error) {
	name := u.id + partSuffix
	f, err := u.dir.open(name, unix.O_RDWR, 0)
	if errors.Is(err, unix.ENOENT) {
		s.forget(u)
		err = protocol.Errorf(protocol.KindEnded, "the bytes of this upload are gone: it must begin anew")
	}
	return &staged{f: f, dir: u.dir, name: name}, err
}

// putUpload gives t, the bytes of u, its place.
func (s *FS) putUpload(t *staged, u *upload) (Written, error) {
	w, err := s.put(t, u.state.Path, WriteOptions{IfMatch: u.state.IfMatch, NoReplace: u.state.NoReplace})
	switch {
	case err == nil:
		s.finish(t.dir, u)
	case errors.Is(err, ErrPrecondition):
		s.forget(u)
	}
	return w, err
}

// extend writes body to f behind offset. u's offset is what f then holds.
func (s *FS) extend(u *upload, f *os.File, offset int64, body io.Reader, sum *Checksum) error {
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	room := u.state.Size - offset
	w := io.Writer(f)
	if sum != nil {
		w = io.MultiWriter(f, sum.Hash)
	}
	n, err := copyTo(w, io.LimitReader(body, room+1))
	switch {
	case n > room:
		n, err = 0, protocol.Errorf(protocol.KindTooLarge, "there are more bytes than the upload's %d", u.state.Size)
	case sum != nil && err != nil:
		n = 0 // nobody can tell whether they are right
	case sum != nil && !bytes.Equal(sum.Hash.Sum(nil), sum.Sum):
		n, err = 0, &protocol.Error{Kind: protocol.KindInvalid, Message: ErrChecksum.Error(), Err: ErrChecksum}
	}
	err = errors.Join(err, f.Truncate(offset+n), f.Sync())
	u.mu.Lock()
	u.offset, u.touched = offset+n, time.Now()
	u.mu.Unlock()
	return err
}

// finish notes that u has its place, for a caller who didn't hear of it.
func (s *FS) finish(d folder, u *upload) {
	u.mu.Lock()
	u.done = true
	u.mu.Unlock()
	if err := d.sync(); err != nil {
		s.log.Warn("the staging folder can't be synced", "err", err)
	}
}

// DropUpload forgets the upload id and removes its bytes.
func (s *FS) DropUpload(id, subject string) error {
	u, err := s.held(id, subject)
	if err != nil {
		return err
	}
	if !u.busy.TryLock() {
		return protocol.Errorf(protocol.KindConflict, "another request adds to this upload")
	}
	defer u.busy.Unlock()
	s.forget(u)
	return nil
}

func (u *upload) isDone() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.done
}

func (s *FS) uploadState(u *upload) UploadState {
	u.mu.Lock()
	defer u.mu.Unlock()
	return UploadState{
		ID: u.id, Path: shown(u.state.Path), Size: u.state.Size, Offset: u.offset,
		Expires: u.touched.Add(s.o.UploadTTL), Metadata: string(u.state.Metadata),
	}
}

// uploadID returns the id of the upload to which a file of the staging folder
// belongs.
func uploadID(name, suffix string) (string, bool) {
	id, ok := strings.CutSuffix(name, suffix)
	return id, ok && id != "" && !strings.HasPrefix(id, writePrefix)
}
