package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
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

	// sweepInterval is how often expired uploads are looked for, and whether
	// the staging folder is where the next process will look for it.
	sweepInterval = time.Minute
)

// A staging is the agent's own folder, in which new content is made, and the
// uploads that lie in it.
type staging struct {
	// Static after construction.
	root *os.Root
	o    *Options
	stop chan struct{} // closed by close, once
	done chan struct{} // closed when the sweeper has ended

	open   atomic.Pointer[folder]
	idents atomic.Pointer[[]inode] // of open, and of former

	making sync.Mutex // held to make the folder
	former []folder   // guarded by making: moved away by someone, open so that no other folder gets their inodes

	mu   sync.Mutex
	held map[string]*upload // guarded by mu: those that may be resumed, by id

	once sync.Once
}

// openStaging opens the staging folder of the workspace root, removes what an
// earlier process left in it but for its uploads, and drops expired uploads now
// and then, until close.
func openStaging(root *os.Root, o *Options) (*staging, error) {
	g := &staging{root: root, o: o, stop: make(chan struct{}), done: make(chan struct{}), held: make(map[string]*upload)}
	if err := g.recover(); err != nil {
		return nil, err
	}
	g.expire(time.Now())
	go g.sweep() // close waits for it
	return g, nil
}

// An inode identifies a file while it is open.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// folder returns the staging folder. Where programs have moved or removed it, it
// is made anew, and the uploads move in: what programs put under its name is set
// aside, neither entered nor used. Only openStaging takes one that is there
// already.
func (g *staging) folder() (folder, error) {
	d, moved, err := g.find()
	if moved {
		g.rehouse(d)
	}
	return d, err
}

// find returns the staging folder, and whether it has taken the place of
// another.
func (g *staging) find() (d folder, moved bool, err error) {
	g.making.Lock()
	defer g.making.Unlock()
	f, err := g.root.OpenFile(".", openFolder, 0)
	if err != nil {
		return folder{}, false, err
	}
	top := folder{f}
	defer top.close()
	old := g.open.Load()
	if old != nil && old.has(top, Staging) {
		return *old, false, nil
	}
	for range stagingTries {
		d, err := takeStaging(top, old == nil)
		if err == nil {
			g.use(d)
			return d, old != nil, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return folder{}, false, err
		}
		name := asidePrefix + rand.Text()
		switch err := top.rename(Staging, top, name, false); {
		case err == nil:
			g.o.Logger.Warn("something had the name of the agent's own folder", "now", name)
		case !errors.Is(err, unix.ENOENT):
			return folder{}, false, err
		}
	}
	return folder{}, false, unix.EEXIST
}

// create makes an empty file in the staging folder.
func (g *staging) create(name string) (*staged, error) {
	d, err := g.folder()
	if err != nil {
		return nil, err
	}
	f, err := d.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &staged{f: f, dir: d, name: name}, nil
}

// hides reports whether st is of the staging folder, or of one before it.
func (g *staging) hides(st *unix.Stat_t) bool {
	idents := g.idents.Load()
	return idents != nil && slices.Contains(*idents, inodeOf(st))
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
// about to work in it. g.making is held.
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

// close ends the sweeper and closes all folders. Uploads are brought to where the
// next openStaging looks for them. It may be called again.
func (g *staging) close() {
	g.once.Do(func() { close(g.stop) })
	<-g.done
	if g.open.Load() != nil {
		if _, err := g.folder(); err != nil {
			g.o.Logger.Warn("uploads may be lost", "err", err)
		}
	}
	g.making.Lock()
	defer g.making.Unlock()
	if d := g.open.Swap(nil); d != nil {
		d.close()
	}
	for _, d := range g.former {
		d.close()
	}
	g.former = nil
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

// A staged file is content on its way to its place.
type staged struct {
	f    *os.File
	dir  folder
	name string // in dir; "" when it is there no more
}

// discard closes t, and removes it unless it has found its place.
func (t *staged) discard() {
	t.f.Close()
	if t.name != "" {
		_ = t.dir.unlink(t.name) // the next Open tries again
	}
}

// recover finds what an earlier process left in the staging folder.
func (g *staging) recover() error {
	d, err := g.folder()
	if err != nil {
		return err
	}
	var names []string
	if err := d.names(func(name string) bool { names = append(names, name); return true }); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		if id, ok := uploadID(name, stateSuffix); ok {
			if u := g.recoverUpload(d, id); u != nil {
				g.held[id] = u
			}
		}
	}
	for _, name := range names {
		id, part := uploadID(name, partSuffix)
		state, isState := uploadID(name, stateSuffix)
		if name == ignoreName || (part && g.held[id] != nil) || (isState && g.held[state] != nil) {
			continue
		}
		if err := d.removeAll(context.Background(), name, 0); err != nil {
			g.o.Logger.Warn("the staging folder can't be cleaned", "err", err)
		}
	}
	return nil
}

// recoverUpload returns the upload id, nil when its files make no sense.
func (g *staging) recoverUpload(d folder, id string) *upload {
	state, st, err := loadUpload(d, id)
	if err != nil {
		g.o.Logger.Warn("an upload can't be resumed", "err", err)
		return nil
	}
	u := &upload{id: id, state: state, dir: d, touched: modified(&st)}
	part, err := d.lstat(id + partSuffix)
	switch {
	case err == nil && isRegular(&part) && part.Size <= state.Size:
		u.offset, u.touched = part.Size, modified(&part)
	case errors.Is(err, unix.ENOENT):
		u.offset, u.done = state.Size, true
	default:
		return nil
	}
	return u
}

// admit holds u when there is room. The oldest upload that is done makes room.
func (g *staging) admit(u *upload) error {
	g.mu.Lock()
	var oldest *upload
	pending := 0
	for _, other := range g.held {
		switch {
		case !other.isDone():
			pending++
		case oldest == nil || other.since().Before(oldest.since()):
			oldest = other
		}
	}
	if pending >= g.o.MaxUploads {
		g.mu.Unlock()
		return protocol.Errorf(protocol.KindTooMany, "%d uploads are open", pending)
	}
	// As many that are done are kept as may be open.
	if len(g.held)-pending < g.o.MaxUploads {
		oldest = nil
	}
	g.held[u.id] = u
	g.mu.Unlock()
	if oldest != nil && oldest.busy.TryLock() {
		g.forget(oldest)
		oldest.busy.Unlock()
	}
	return nil
}

// upload returns the upload id of subject.
func (g *staging) upload(id, subject string) (*upload, error) {
	g.mu.Lock()
	u := g.held[id]
	g.mu.Unlock()
	if u == nil || u.state.Subject != subject || g.expired(u, time.Now()) {
		return nil, protocol.Errorf(protocol.KindNotFound, "there is no such upload")
	}
	return u, nil
}

func (g *staging) expired(u *upload, now time.Time) bool {
	return !now.Before(u.since().Add(g.o.UploadTTL))
}

// forget drops u and removes its files: its state first, so that what is left by
// a crash doesn't seem to have its place. u.busy is held.
func (g *staging) forget(u *upload) {
	g.mu.Lock()
	delete(g.held, u.id)
	g.mu.Unlock()
	var err error
	for _, suffix := range []string{stateSuffix, partSuffix} {
		if e := u.dir.unlink(u.id + suffix); e != nil && !errors.Is(e, unix.ENOENT) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		g.o.Logger.Warn("an upload can't be removed", "err", err)
	}
}

// house brings u to the staging folder, if that isn't where it is. u.busy is
// held.
func (g *staging) house(u *upload) {
	d, err := g.folder()
	if err != nil {
		g.o.Logger.Warn("there is no staging folder", "err", err)
		return // u goes on where it is
	}
	g.moveUpload(u, d)
}

// rehouse moves the uploads to d out of a folder that someone moved away. What
// is left there are files of writes that go on; then whoever moved it can remove
// it.
func (g *staging) rehouse(d folder) {
	for _, u := range g.all() {
		if u.busy.TryLock() { // whoever holds busy moves the upload itself
			g.moveUpload(u, d)
			u.busy.Unlock()
		}
	}
	g.making.Lock()
	defer g.making.Unlock()
	for _, f := range g.former {
		_ = f.unlink(ignoreName) // or it isn't there
	}
}

// all returns the uploads that may be resumed.
func (g *staging) all() []*upload {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.held))
}

// moveUpload moves the files of u to d. When that fails they stay where they are,
// and are lost to the next process. u.busy is held.
func (g *staging) moveUpload(u *upload, d folder) {
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
		g.o.Logger.Warn("an upload can't follow the staging folder", "err", err)
		return
	}
	u.dir = d
	if err := d.sync(); err != nil {
		g.o.Logger.Warn("the staging folder can't be synced", "err", err)
	}
}

// expire drops the uploads whose time is over.
func (g *staging) expire(now time.Time) {
	for _, u := range g.all() {
		if !g.expired(u, now) || !u.busy.TryLock() {
			continue
		}
		if g.expired(u, now) { // still: its last byte may have come just now
			g.forget(u)
		}
		u.busy.Unlock()
	}
}

// sweep drops expired uploads, and sees to it that the staging folder is where
// the next process looks for it, until close.
func (g *staging) sweep() {
	defer close(g.done)
	ticker := time.NewTicker(min(sweepInterval, max(g.o.UploadTTL, time.Second)))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			g.expire(now)
			if _, err := g.folder(); err != nil {
				g.o.Logger.Warn("there is no staging folder", "err", err)
			}
		case <-g.stop:
			return
		}
	}
}
