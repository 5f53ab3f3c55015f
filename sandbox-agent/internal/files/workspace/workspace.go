package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"sync"
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

	// Owner returns the uid to which new files and folders go whose folder has
	// an owner that isn't the sandbox's, so that its programs may change them.
	// They keep the folder's group. nil or !ok: the folder's owner, as in all
	// other folders. It is called while other writes wait.
	Owner func() (uid int, ok bool)

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
	escapes error      // what os.Root says of a path that leads outside
	homes   [][]string // the names of the workspace's own absolute paths
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
	s := &FS{o: o, root: root, homes: homes(o.Dir), log: o.Logger}
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
	if s.staging.open.Load() != nil {
		if _, err := s.stagingFolder(); err != nil { // where the next Open looks for it
			s.log.Warn("uploads may be lost", "err", err)
		}
	}
	s.staging.close()
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

// owner returns to whom something new in the folder dir goes.
func (s *FS) owner(dir *unix.Stat_t) (uid, gid uint32) {
	if s.o.Owner != nil && s.alien(dir) {
		if uid, ok := s.o.Owner(); ok && uid >= 0 {
			return uint32(uid), dir.Gid
		}
	}
	return dir.Uid, dir.Gid
}
