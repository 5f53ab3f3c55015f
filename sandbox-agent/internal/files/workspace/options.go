package workspace

import (
	"log/slog"
	"math"
	"time"
)

// Defaults of [Options].
const (
	DefaultMaxFileBytes   = 10 << 30 // no content is kept in memory, so only the disk is filled
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
