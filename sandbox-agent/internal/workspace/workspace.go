package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// Defaults of [Options].
const (
	DefaultMaxFileBytes   = 50 << 20
	DefaultMaxUploadBytes = 10 << 30
	DefaultMaxEntries     = 100_000
	DefaultMaxUploads     = 64
	DefaultUploadTTL      = 24 * time.Hour
	DefaultMaxWatched     = 8192
	DefaultMaxWatches     = 64
)

// Options configure an [FS].
type Options struct {
	Dir string // the workspace, which must be there

	// Own reports whether a uid is one of the sandbox's. A file with several
	// names whose owner it isn't is refused: it may be a hard link to a file
	// outside. nil: any uid is.
	Own func(uid uint32) bool

	MaxFileBytes   int64         // of one write; default: DefaultMaxFileBytes
	MaxUploadBytes int64         // of one resumable upload; default: DefaultMaxUploadBytes
	MaxEntries     int           // of one list; default: DefaultMaxEntries
	MaxUploads     int           // resumable uploads that are held; default: DefaultMaxUploads
	UploadTTL      time.Duration // of a resumable upload after its last byte; default: DefaultUploadTTL
	MaxWatched     int           // folders watched in all; default: DefaultMaxWatched
	MaxWatches     int           // watches at a time; default: DefaultMaxWatches
	Logger         *slog.Logger  // nil: silent
}

func (o *Options) fill() {
	for _, n := range []struct {
		v *int64
		d int64
	}{{&o.MaxFileBytes, DefaultMaxFileBytes}, {&o.MaxUploadBytes, DefaultMaxUploadBytes}} {
		if *n.v <= 0 {
			*n.v = n.d
		}
		*n.v = min(*n.v, math.MaxInt64-1) // one more is read to know that there is more
	}
	for _, n := range []struct {
		v *int
		d int
	}{
		{&o.MaxEntries, DefaultMaxEntries}, {&o.MaxUploads, DefaultMaxUploads},
		{&o.MaxWatched, DefaultMaxWatched}, {&o.MaxWatches, DefaultMaxWatches},
	} {
		if *n.v <= 0 {
			*n.v = n.d
		}
	}
	if o.UploadTTL <= 0 {
		o.UploadTTL = DefaultUploadTTL
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// An FS is the files below one folder. It is safe for concurrent use. Its errors
// have a [protocol.Kind]; their text may be shown to whoever asked.
type FS struct {
	// Static after construction.
	o       Options
	root    *os.Root
	escapes error // what os.Root says of a path that leads outside
	log     *slog.Logger

	// commit is held from the look at what a write replaces to its rename, so
	// that no caller of this FS replaces another's file unseen.
	commit sync.Mutex

	staging staging
	uploads uploads
	watches watches
}

// Open opens the workspace o.Dir, removes what writes of an earlier process left
// behind, and finds the uploads that may be resumed.
func Open(o Options) (*FS, error) {
	o.fill()
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	s := &FS{o: o, root: root, log: o.Logger}
	s.watches.folders.Store(int64(o.MaxWatched))
	var outside *fs.PathError
	if _, err := root.Lstat(".."); errors.As(err, &outside) {
		s.escapes = outside.Err
	}
	if err := s.recoverUploads(); err != nil {
		root.Close()
		return nil, fmt.Errorf("workspace: %w", err)
	}
	return s, nil
}

// Close ends all watches and what runs in the background. Uploads stay to be
// resumed after the next Open. It may be called again.
func (s *FS) Close() error {
	s.watches.close()
	s.uploads.close()
	if d := s.staging.open.Swap(nil); d != nil {
		d.close()
	}
	return s.root.Close()
}

// MaxFileBytes returns the limit of one write.
func (s *FS) MaxFileBytes() int64 { return s.o.MaxFileBytes }

// MaxUploadBytes returns the limit of one resumable upload.
func (s *FS) MaxUploadBytes() int64 { return s.o.MaxUploadBytes }

// refuseAlien refuses a file with several names that isn't the sandbox's.
func (s *FS) refuseAlien(st *unix.Stat_t) error {
	if st.Nlink > 1 && isRegular(st) && s.alien(st) {
		return protocol.Errorf(protocol.KindForbidden, "the file has another name, and its owner is outside of the sandbox")
	}
	return nil
}

// alien reports whether the owner of a file is outside of the sandbox.
func (s *FS) alien(st *unix.Stat_t) bool { return s.o.Own != nil && !s.o.Own(st.Uid) }

// A staging is the agent's own folder, in which new content is made.
type staging struct {
	mu    sync.Mutex // held to make it
	open  atomic.Pointer[folder]
	ident atomic.Pointer[inode]
}

const (
	// stagingMode lets others see that the staging folder holds nothing for
	// them: git reads every folder, and complains of those that it can't.
	stagingMode = 0o755
	ignoreName  = ".gitignore"
)

// An inode identifies a file while it is open.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// stagingFolder returns the staging folder. Programs may remove it when it is
// empty, and then it is made anew; one that they have moved is used as it is.
func (s *FS) stagingFolder() (folder, error) {
	s.staging.mu.Lock()
	defer s.staging.mu.Unlock()
	if d := s.staging.open.Load(); d != nil {
		if st, err := d.stat(); err == nil && st.Nlink > 0 {
			return *d, nil
		}
	}
	top, err := s.folder(".")
	if err != nil {
		return folder{}, err
	}
	defer top.close()
	for range 3 {
		d, st, err := adoptStaging(top)
		if err == nil {
			// One that was in use is left to the garbage collector: others
			// may be about to work in it.
			id := inodeOf(&st)
			s.staging.ident.Store(&id)
			s.staging.open.Store(&d)
			return d, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return folder{}, err
		}
		// Something of that name is not ours.
		if err := s.removeAll(neverDone, top, Staging, 0); err != nil {
			return folder{}, err
		}
	}
	return folder{}, unix.EEXIST
}

// adoptStaging opens the staging folder in top, made when missing. It returns
// EEXIST when what has its name can't be trusted.
func adoptStaging(top folder) (folder, unix.Stat_t, error) {
	if err := top.mkdir(Staging, stagingMode); err != nil && !errors.Is(err, unix.EEXIST) {
		return folder{}, unix.Stat_t{}, err
	}
	d, err := top.child(Staging)
	if err != nil {
		return folder{}, unix.Stat_t{}, unix.EEXIST
	}
	st, err := d.stat()
	if err == nil && (int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0) {
		err = unix.EEXIST
	}
	if err != nil {
		d.close()
		return folder{}, st, err
	}
	d.hide()
	return d, st, nil
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
	id := s.staging.ident.Load()
	return id != nil && *id == inodeOf(st)
}
