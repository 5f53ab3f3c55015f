package workspace

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// sweepInterval is how often expired uploads are looked for, and whether
	// the staging folder is where the next process will look for it.
	sweepInterval = time.Minute
	// maxStateBytes bounds an upload's state file.
	maxStateBytes = 64 << 10
	// What an upload keeps of its creation.
	maxMetadataBytes  = 16 << 10
	maxConditionBytes = 4 << 10
)

// An uploadFile is the JSON form of what an upload is to become.
type uploadFile struct {
	Path      string `json:"path"` // clean
	Size      int64  `json:"size"`
	Subject   string `json:"subject"`
	NoReplace bool   `json:"no_replace,omitempty"`
	IfMatch   string `json:"if_match,omitempty"`
	Metadata  []byte `json:"metadata,omitempty"` // may be no UTF-8
}

// uploads are those that may be resumed.
type uploads struct {
	mu   sync.Mutex
	held map[string]*upload // guarded by mu: by id

	once sync.Once
	stop chan struct{} // closed by close, once
	done chan struct{} // closed when the sweeper has ended
}

// recoverUploads finds what an earlier process left in the staging folder, and
// starts the sweeper, which close waits for.
func (s *FS) recoverUploads() error {
	s.uploads.held = make(map[string]*upload)
	d, err := s.stagingFolder()
	if err != nil {
		return err
	}
	var names []string
	if err := d.names(func(name string) bool { names = append(names, name); return true }); err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := uploadID(name, stateSuffix); ok {
			s.recoverUpload(d, id)
		}
	}
	for _, name := range names {
		id, part := uploadID(name, partSuffix)
		state, isState := uploadID(name, stateSuffix)
		if name == ignoreName || (part && s.uploads.held[id] != nil) || (isState && s.uploads.held[state] != nil) {
			continue
		}
		if err := s.removeAll(neverDone, d, name, 0); err != nil {
			s.log.Warn("the staging folder can't be cleaned", "err", err)
		}
	}
	s.expire(time.Now())
	s.uploads.stop, s.uploads.done = make(chan struct{}), make(chan struct{})
	go s.sweep()
	return nil
}

// recoverUpload holds the upload id unless its files make no sense.
func (s *FS) recoverUpload(d folder, id string) {
	state, st, err := loadUpload(d, id)
	if err != nil {
		s.log.Warn("an upload can't be resumed", "err", err)
		return
	}
	u := &upload{id: id, state: state, dir: d, touched: modified(&st)}
	part, err := d.lstat(id + partSuffix)
	switch {
	case err == nil && isRegular(&part) && part.Size <= state.Size:
		u.offset, u.touched = part.Size, modified(&part)
	case errors.Is(err, unix.ENOENT):
		u.offset, u.done = state.Size, true
	default:
		return
	}
	s.uploads.held[id] = u
}

func loadUpload(d folder, id string) (uploadFile, unix.Stat_t, error) {
	f, err := d.open(id+stateSuffix, unix.O_RDONLY, 0)
	if err != nil {
		return uploadFile{}, unix.Stat_t{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return uploadFile{}, st, err
	}
	if !isRegular(&st) {
		return uploadFile{}, st, errSpecial
	}
	text, err := io.ReadAll(io.LimitReader(f, maxStateBytes))
	if err != nil {
		return uploadFile{}, st, err
	}
	var state uploadFile
	if err := json.Unmarshal(text, &state); err != nil {
		return uploadFile{}, st, err
	}
	// Where terminals have the agent's uid, one may have written it.
	if clean, err := Clean(state.Path); err != nil || clean != state.Path || clean == "." || state.Size < 0 {
		return uploadFile{}, st, errors.New("its state is malformed")
	}
	return state, st, nil
}

func saveUpload(d folder, id string, state uploadFile) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if len(text) > maxStateBytes {
		return protocol.Errorf(protocol.KindTooLarge, "the upload's description is over %d bytes", maxStateBytes)
	}
	temp := writePrefix + rand.Text()
	f, err := d.open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.rename(temp, d, id+stateSuffix, true)
	}
	if err != nil {
		return errors.Join(err, d.unlink(temp))
	}
	return d.sync()
}

// admit holds u when there is room. Those that have their place make it.
func (s *FS) admit(u *upload) error {
	us := &s.uploads
	us.mu.Lock()
	var oldest *upload
	pending := 0
	for _, other := range us.held {
		switch {
		case !other.isDone():
			pending++
		case oldest == nil || other.since().Before(oldest.since()):
			oldest = other
		}
	}
	if pending >= s.o.MaxUploads {
		us.mu.Unlock()
		return protocol.Errorf(protocol.KindTooMany, "%d uploads are open", pending)
	}
	// As many that are done are kept as may be open.
	if len(us.held)-pending < s.o.MaxUploads {
		oldest = nil
	}
	us.held[u.id] = u
	us.mu.Unlock()
	if oldest != nil && oldest.busy.TryLock() {
		s.forget(oldest)
		oldest.busy.Unlock()
	}
	return nil
}

func (u *upload) since() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.touched
}

// held returns the upload id of subject.
func (s *FS) held(id, subject string) (*upload, error) {
	s.uploads.mu.Lock()
	u := s.uploads.held[id]
	s.uploads.mu.Unlock()
	if u == nil || u.state.Subject != subject || s.expired(u, time.Now()) {
		return nil, protocol.Errorf(protocol.KindNotFound, "there is no such upload")
	}
	return u, nil
}

func (s *FS) expired(u *upload, now time.Time) bool {
	return !now.Before(u.since().Add(s.o.UploadTTL))
}

// forget drops u and removes its files: its state first, so that what is left by
// a crash doesn't seem to have its place. u.busy is held.
func (s *FS) forget(u *upload) {
	s.uploads.mu.Lock()
	delete(s.uploads.held, u.id)
	s.uploads.mu.Unlock()
	var err error
	for _, suffix := range []string{stateSuffix, partSuffix} {
		if e := u.dir.unlink(u.id + suffix); e != nil && !errors.Is(e, unix.ENOENT) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		s.log.Warn("an upload can't be removed", "err", err)
	}
}

// house brings u to the staging folder, if that isn't where it is. u.busy is
// held.
func (s *FS) house(u *upload) {
	d, err := s.stagingFolder()
	if err != nil {
		s.log.Warn("there is no staging folder", "err", err)
		return // u goes on where it is
	}
	s.moveUpload(u, d)
}

// moveUpload moves the files of u to d. When that fails they stay where they are,
// and are lost to the next process. u.busy is held.
func (s *FS) moveUpload(u *upload, d folder) {
	if u.dir == d {
		return
	}
	// The state comes last: alone it would say that the file has its place.
	err := u.dir.rename(u.id+partSuffix, d, u.id+partSuffix, true)
	if err == nil || errors.Is(err, unix.ENOENT) {
		err = u.dir.rename(u.id+stateSuffix, d, u.id+stateSuffix, true)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			_ = d.rename(u.id+partSuffix, u.dir, u.id+partSuffix, true) // or its next Append ends it
		}
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		s.log.Warn("an upload can't follow the staging folder", "err", err)
		return
	}
	u.dir = d
	if err := d.sync(); err != nil {
		s.log.Warn("the staging folder can't be synced", "err", err)
	}
}

// expire drops the uploads whose time is over.
func (s *FS) expire(now time.Time) {
	s.uploads.mu.Lock()
	var over []*upload
	for _, u := range s.uploads.held {
		if s.expired(u, now) && u.busy.TryLock() {
			over = append(over, u)
		}
	}
	s.uploads.mu.Unlock()
	for _, u := range over {
		s.forget(u)
		u.busy.Unlock()
	}
}

func (s *FS) sweep() {
	defer close(s.uploads.done)
	ticker := time.NewTicker(min(sweepInterval, max(s.o.UploadTTL, time.Second)))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.expire(now)
			if _, err := s.stagingFolder(); err != nil {
				s.log.Warn("there is no staging folder", "err", err)
			}
		case <-s.uploads.stop:
			return
		}
	}
}

// close ends the sweeper.
func (us *uploads) close() {
	us.once.Do(func() { close(us.stop) })
	<-us.done
}
