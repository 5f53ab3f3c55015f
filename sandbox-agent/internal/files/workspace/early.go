package workspace

import (
	"os"

	"golang.org/x/sys/unix"
)

// earlyBytes is how much is written to a file before the disk begins with it.
const earlyBytes = 4 << 20

// An early writes to a file and has the disk begin while more comes. The sync at the
// end of a long file would else take as long as the whole did to come.
type early struct {
	f     *os.File
	at    int64 // offset of what the disk hasn't been asked for
	ready int64 // bytes from there on
}

func (e *early) Write(p []byte) (int, error) {
	n, err := e.f.Write(p)
	if e.ready += int64(n); e.ready >= earlyBytes {
		// It promises nothing and may not be possible here: the sync at the end is
		// what counts.
		_ = unix.SyncFileRange(int(e.f.Fd()), e.at, e.ready, unix.SYNC_FILE_RANGE_WRITE)
		e.at, e.ready = e.at+e.ready, 0
	}
	return n, err
}
