package workspace

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// stagingMode lets others see that the staging folder holds nothing for
	// them: git reads every folder, and complains of those that it can't.
	stagingMode = 0o755
	ignoreName  = ".gitignore"

	// asidePrefix begins the name that something gets which was found under
	// the staging folder's name.
	asidePrefix = "fairlead-set-aside-"
	// stagingTries is how often that is done in a row.
	stagingTries = 3
	// maxFormer bounds the staging folders that stay hidden after they were
	// moved away.
	maxFormer = 16
)

// A staging is the agent's own folder, in which new content is made.
type staging struct {
	open   atomic.Pointer[folder]
	idents atomic.Pointer[[]inode] // of open, and of former

	mu     sync.Mutex // held to make it
	former []folder   // guarded by mu: moved away by someone, open so that no other folder gets their inodes
}

// An inode identifies a file while it is open.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// stagingFolder returns the staging folder. Where programs have moved or removed
// it, it is made anew, and the uploads move in: what they put under its name is
// set aside, neither entered nor used. Only Open takes one that is there already.
func (s *FS) stagingFolder() (folder, error) {
	d, moved, err := s.findStaging()
	if moved {
		s.rehouse(d)
	}
	return d, err
}

// findStaging returns the staging folder, and whether it has taken the place of
// another.
func (s *FS) findStaging() (d folder, moved bool, err error) {
	s.staging.mu.Lock()
	defer s.staging.mu.Unlock()
	top, err := s.folder(".")
	if err != nil {
		return folder{}, false, err
	}
	defer top.close()
	old := s.staging.open.Load()
	if old != nil && old.has(top, Staging) {
		return *old, false, nil
	}
	for range stagingTries {
		d, err := takeStaging(top, old == nil)
		if err == nil {
			s.staging.use(d)
			return d, old != nil, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return folder{}, false, err
		}
		name := asidePrefix + rand.Text()
		switch err := top.rename(Staging, top, name, false); {
		case err == nil:
			s.log.Warn("something had the name of the agent's own folder", "now", name)
		case !errors.Is(err, unix.ENOENT):
			return folder{}, false, err
		}
	}
	return folder{}, false, unix.EEXIST
}

// has reports whether d is what name in parent is.
func (d folder) has(parent folder, name string) bool {
	there, err := parent.lstat(name)
	if err != nil {
		return false
	}
	st, err := d.stat()
	return err == nil && inodeOf(&st) == inodeOf(&there)
}

// takeStaging makes the staging folder in top, or with adopt opens the one that
// is there. It returns EEXIST when what has its name can't be trusted.
func takeStaging(top folder, adopt bool) (folder, error) {
	err := top.mkdir(Staging, stagingMode)
	made := err == nil
	if err != nil && (!adopt || !errors.Is(err, unix.EEXIST)) {
		return folder{}, err
	}
	d, err := top.child(Staging)
	if gone(err) || errors.Is(err, unix.EACCES) {
		err = unix.EEXIST
	}
	if err != nil {
		return folder{}, err
	}
	if err := d.ours(made); err != nil {
		d.close()
		return folder{}, err
	}
	d.hide()
	return d, nil
}

// ours returns EEXIST unless d is a folder into which only the agent can put
// something; a new one is empty as well.
func (d folder) ours(made bool) error {
	st, err := d.stat()
	if err == nil && (int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0) {
		return unix.EEXIST
	}
	if err != nil || !made {
		return err
	}
	if _, err := d.f.Readdirnames(1); !errors.Is(err, io.EOF) {
		return unix.EEXIST // another has taken its place
	}
	_, err = d.f.Seek(0, io.SeekStart)
	return err
}

// use makes d the staging folder. The one before stays hidden; when it is
// dropped at last, it is left to the garbage collector, since others may be
// about to work in it. g.mu is held.
func (g *staging) use(d folder) {
	if old := g.open.Load(); old != nil {
		g.former = append(g.former, *old)
	}
	g.former = slices.DeleteFunc(g.former, func(f folder) bool {
		st, err := f.stat()
		return err != nil || st.Nlink == 0
	})
	if over := len(g.former) - maxFormer; over > 0 {
		g.former = slices.Delete(g.former, 0, over)
	}
	idents := make([]inode, 0, len(g.former)+1)
	for _, f := range append([]folder{d}, g.former...) {
		if st, err := f.stat(); err == nil {
			idents = append(idents, inodeOf(&st))
		}
	}
	g.idents.Store(&idents)
	g.open.Store(&d)
}

// close closes all folders.
func (g *staging) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.open.Swap(nil); d != nil {
		d.close()
	}
	for _, d := range g.former {
		d.close()
	}
	g.former = nil
}

// rehouse moves the uploads to d out of a folder that someone moved away. What
// is left there are files of writes that go on; then whoever moved it can remove
// it.
func (s *FS) rehouse(d folder) {
	s.uploads.mu.Lock()
	all := make([]*upload, 0, len(s.uploads.held))
	for _, u := range s.uploads.held {
		all = append(all, u)
	}
	s.uploads.mu.Unlock()
	for _, u := range all {
		if !u.busy.TryLock() {
			continue // whoever holds it sees to it
		}
		s.moveUpload(u, d)
		u.busy.Unlock()
	}
	s.staging.mu.Lock()
	defer s.staging.mu.Unlock()
	for _, f := range s.staging.former {
		_ = f.unlink(ignoreName) // or it isn't there
	}
}

// hide keeps the staging folder d out of a repository that the workspace is.
// That it can't be done is no error.
func (d folder) hide() {
	_ = d.f.Chmod(stagingMode) // the umask may have taken some of it
	f, err := d.open(ignoreName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_ = f.Chmod(0o644)
	_, _ = f.WriteString("*\n")
}

func (s *FS) isStaging(d folder) bool {
	st, err := d.stat()
	return err == nil && s.isStagingInode(&st)
}

func (s *FS) isStagingInode(st *unix.Stat_t) bool {
	idents := s.staging.idents.Load()
	return idents != nil && slices.Contains(*idents, inodeOf(st))
}
