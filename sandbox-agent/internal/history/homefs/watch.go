package homefs

import (
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxFolders bounds the folders that a Watcher watches in one home.
	maxFolders = 512

	folderMask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK | unix.IN_DELETE_SELF
	fileMask   = folderMask | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM
)

// A Listener is told which files change.
type Listener interface {
	// Changed is called, by one goroutine, with the path of each file that changes,
	// comes or goes, and with an empty one when any may have. It must not wait, nor
	// call the Watcher.
	Changed(home *Home, name string)
}

// A Watcher tells which files change in homes. It is safe for concurrent use.
type Watcher struct {
	// Static after construction.
	tell   Listener
	fd     int
	events *os.File
	done   chan struct{} // closed when run has ended

	mu sync.Mutex
	// Guarded by mu.
	watched map[int32]watch
	homes   map[*Home]*watchedHome
	missed  uint64 // folders that aren't watched
	closed  bool
}

// A watchedHome is a home that is watched.
type watchedHome struct {
	left    [][]string // all patterns
	folders int        // how many are watched
}

// A watch is a watched folder.
type watch struct {
	home *Home
	dir  string
	left [][]string // what is left of each pattern that leads through it
}

// NewWatcher returns a Watcher that watches nothing yet. Close it.
func NewWatcher(tell Listener) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("no homes can be watched: %w", err)
	}
	w := &Watcher{
		tell: tell, fd: fd, events: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		watched: make(map[int32]watch), homes: make(map[*Home]*watchedHome),
	}
	go w.run() // Close waits for it
	return w, nil
}

// Add watches what patterns name in a home, as [Home.Find] takes them. It doesn't
// tell of what is there already.
func (w *Watcher) Add(home *Home, patterns []string) {
	left := make([][]string, len(patterns))
	for i, p := range patterns {
		left[i] = strings.Split(p, "/")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.homes[home] = &watchedHome{left: left}
	w.descend(watch{home, "", left}, false)
}

// Remove ends the watch of a home.
func (w *Watcher) Remove(home *Home) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wd, at := range w.watched {
		if at.home == home {
			w.forget(wd)
		}
	}
	delete(w.homes, home)
}

// Missed returns how many folders aren't watched, because there are too many; 0
// for nil.
func (w *Watcher) Missed() uint64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missed
}

// Close ends the watch, and waits until nothing more is told.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.events.Close()
	<-w.done
	return err
}

// forget stops watching a folder. The caller holds mu.
func (w *Watcher) forget(wd int32) {
	if at, known := w.watched[wd]; known {
		delete(w.watched, wd)
		w.homes[at.home].folders--
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // it may be gone
	}
}

// descend watches a folder and those below it that patterns lead through. With
// report, files in them count as changed: they may have come before they were
// watched. The caller holds mu.
func (w *Watcher) descend(at watch, report bool) {
	if w.closed || !w.add(at) {
		return
	}
	for _, e := range at.home.entries(at.dir, 16*maxFolders) {
		below, file := at.below(e.Name())
		switch {
		case e.IsDir() && len(below.left) > 0:
			w.descend(below, report)
		case file && report && e.Type().IsRegular():
			w.tell.Changed(at.home, below.dir)
		}
	}
}

// add watches one folder. The caller holds mu.
func (w *Watcher) add(at watch) bool {
	f, err := at.home.folder(at.dir)
	if err != nil {
		return false
	}
	defer f.Close()
	mask := uint32(folderMask)
	for _, left := range at.left {
		if len(left) == 1 {
			mask = fileMask
		}
	}
	if w.homes[at.home].folders >= maxFolders {
		w.missed++
		return false
	}
	wd, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mask)
	if err != nil {
		w.missed++
		return false
	}
	if _, known := w.watched[int32(wd)]; !known {
		w.homes[at.home].folders++
	}
	w.watched[int32(wd)] = at
	return true
}

// below returns what the patterns lead to at name in the folder, and whether one
// of them names it as a file.
func (at watch) below(name string) (below watch, file bool) {
	below = watch{home: at.home, dir: path.Join(at.dir, name)}
	for _, left := range at.left {
		if ok, _ := path.Match(left[0], name); !ok {
			continue
		}
		if len(left) == 1 {
			file = true
		} else {
			below.left = append(below.left, left[1:])
		}
	}
	return below, file
}

// run tells what happens until Close.
func (w *Watcher) run() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := w.events.Read(buf)
		if err != nil {
			return // it is closed
		}
		w.mu.Lock()
		for events := buf[:n]; len(events) >= unix.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
			if end > len(events) {
				break
			}
			name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")
			events = events[end:]
			w.event(wd, mask, name)
		}
		w.mu.Unlock()
	}
}

// event works off one event. The caller holds mu.
func (w *Watcher) event(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for home, all := range w.homes { // folders may have come
			w.descend(watch{home, "", all.left}, false)
			w.tell.Changed(home, "")
		}
		return
	}
	at, known := w.watched[wd]
	if !known {
		return
	}
	if mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF) != 0 {
		delete(w.watched, wd)
		w.homes[at.home].folders--
		return
	}
	below, file := at.below(name)
	if mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && len(below.left) > 0 {
		w.descend(below, true)
	}
	if file && mask&unix.IN_ISDIR == 0 {
		w.tell.Changed(at.home, below.dir)
	}
}
