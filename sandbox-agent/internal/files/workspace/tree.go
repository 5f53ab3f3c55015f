package workspace

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM |
		unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

	eventBytes   = unix.SizeofInotifyEvent
	eventsAtOnce = 64 << 10
)

// errFolderGone ends the watches of a folder that is no more.
var errFolderGone = protocol.Errorf(protocol.KindNotFound, "the folder is gone")

// A tree watches one folder, with all below it when deep, for several Watches.
// The kernel watches the open folders themselves, so that no rename leads it
// elsewhere.
type tree struct {
	// Static after construction.
	all    *watches
	key    treeKey
	fd     int           // of events; used by run alone
	events *os.File      // closed by run
	ready  chan struct{} // closed when the folder is watched, or can't be
	done   chan struct{} // closed when run has ended

	partial atomic.Bool
	stopped atomic.Bool

	mu      sync.Mutex
	watches map[*Watch]struct{} // guarded by mu
	ended   error               // guarded by mu

	// Owned by run.
	paths  map[int32]string // the clean path of each watched folder
	wds    map[string]int32 // the reverse
	top    int32            // the watched folder itself
	cookie uint32           // of the last that moved away
}

// run watches until stop is called or the folder is gone.
func (t *tree) run() {
	defer close(t.done)
	defer t.events.Close()
	defer func() { t.all.folders.Add(int64(len(t.paths))) }()
	err := t.begin()
	if err != nil {
		t.finish(err)
	}
	close(t.ready)
	buf := make([]byte, eventsAtOnce)
	for err == nil {
		var n int
		if n, err = t.events.Read(buf); err == nil {
			err = t.handle(buf[:n])
		}
	}
	t.finish(err)
}

// stop ends run and waits for it.
func (t *tree) stop() {
	t.stopped.Store(true)
	t.events.SetReadDeadline(time.Unix(1, 0))
	<-t.done
}

// finish ends all Watches of t.
func (t *tree) finish(err error) {
	ws := t.all
	ws.mu.Lock()
	ws.drop(t)
	ws.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = err
	}
	for w := range t.watches {
		w.finish(t.ended)
	}
}

// begin watches the folder, and what is below it.
func (t *tree) begin() error {
	d, err := t.all.files.listed(t.key.clean)
	if err != nil {
		return err
	}
	defer d.close()
	st, err := d.stat()
	if err != nil {
		return err
	}
	if !t.add(d, t.key.clean) {
		return protocol.Errorf(protocol.KindTooMany, "no more folders can be watched")
	}
	t.top = t.wds[t.key.clean]
	if t.key.deep {
		t.explore([]found{{t.key.clean, inodeOf(&st)}}, false)
	}
	return nil
}

// A found folder is one to be watched.
type found struct {
	clean string
	inode inode // so that it is this one, and not what a symlink leads to
}

// explore watches the folders of queue and what is below them, the upper ones
// first. With report, what is in them counts as created: it may have been made
// before they were watched.
func (t *tree) explore(queue []found, report bool) {
	for len(queue) > 0 && !t.stopped.Load() {
		next := queue[0]
		queue = queue[1:]
		d, err := t.all.files.folder(next.clean)
		if err != nil {
			continue
		}
		if st, err := d.stat(); err == nil && inodeOf(&st) == next.inode && t.add(d, next.clean) {
			queue = append(queue, t.content(d, next.clean, report)...)
			if room := int(t.all.folders.Load()); len(queue) > room {
				t.outgrow()
				queue = queue[:max(room, 0)]
			}
		}
		d.close()
	}
}

// content returns the folders in d.
func (t *tree) content(d folder, clean string, report bool) []found {
	var folders []found
	room := t.all.folders.Load()
	err := d.names(func(name string) bool {
		st, err := d.lstat(name)
		if err != nil || t.all.files.staging.hides(&st) {
			return true
		}
		path := below(clean, name)
		if report {
			t.tell(path, Created)
		}
		if isDir(&st) {
			if int64(len(folders)) >= room {
				t.outgrow()
				return report
			}
			folders = append(folders, found{path, inodeOf(&st)})
		}
		return !t.stopped.Load()
	})
	if err != nil {
		t.outgrow()
	}
	return folders
}

// add watches the folder d. It returns false when no more can be.
func (t *tree) add(d folder, clean string) bool {
	wd, err := unix.InotifyAddWatch(t.fd, descriptor(d.f), watchMask)
	if err != nil {
		t.outgrow()
		return false
	}
	id := int32(wd)
	if old, known := t.paths[id]; known {
		if t.wds[old] == id {
			delete(t.wds, old)
		}
	} else if t.all.folders.Add(-1) < 0 {
		t.all.folders.Add(1)
		t.outgrow()
		_, _ = unix.InotifyRmWatch(t.fd, uint32(id))
		return false
	}
	t.paths[id], t.wds[clean] = clean, id
	return true
}

// forget drops the watched folder wd.
func (t *tree) forget(wd int32) {
	clean, known := t.paths[wd]
	if !known {
		return
	}
	delete(t.paths, wd)
	if t.wds[clean] == wd {
		delete(t.wds, clean)
	}
	t.all.folders.Add(1)
}

// leave stops watching the folder clean and all below it: it has moved.
func (t *tree) leave(clean string) {
	for path, wd := range t.wds {
		if path == clean || strings.HasPrefix(path, clean+"/") {
			_, _ = unix.InotifyRmWatch(t.fd, uint32(wd))
			t.forget(wd)
		}
	}
}

// tell gives a change to all Watches.
func (t *tree) tell(clean, kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.watches {
		w.add(shown(clean), kind)
	}
}

// handle works off what was read from inotify.
func (t *tree) handle(events []byte) error {
	for len(events) >= eventBytes {
		wd := int32(binary.NativeEndian.Uint32(events[0:]))
		mask := binary.NativeEndian.Uint32(events[4:])
		cookie := binary.NativeEndian.Uint32(events[8:])
		length := int(binary.NativeEndian.Uint32(events[12:]))
		if length > len(events)-eventBytes {
			return errors.New("workspace: an inotify event is cut off")
		}
		name := strings.TrimRight(string(events[eventBytes:eventBytes+length]), "\x00")
		events = events[eventBytes+length:]
		if err := t.event(wd, mask, cookie, name); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) event(wd int32, mask, cookie uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return t.restart()
	}
	dir, known := t.paths[wd]
	switch {
	case !known:
		return nil
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0:
		if wd == t.top {
			t.tell(dir, Removed)
			return errFolderGone
		}
		if mask&unix.IN_IGNORED != 0 {
			t.forget(wd)
		}
		return nil
	case name == "" || reserved(name):
		return nil
	}
	t.change(below(dir, name), mask, cookie)
	return nil
}

// change tells of one name in a watched folder.
func (t *tree) change(clean string, mask, cookie uint32) {
	folder := mask&unix.IN_ISDIR != 0 && t.key.deep
	switch {
	case mask&unix.IN_CREATE != 0:
		t.tell(clean, Created)
	case mask&(unix.IN_MODIFY|unix.IN_ATTRIB) != 0:
		t.tell(clean, Changed)
		return
	case mask&unix.IN_DELETE != 0:
		t.tell(clean, Removed)
		return
	case mask&unix.IN_MOVED_FROM != 0:
		t.cookie = cookie
		t.tell(clean, Removed)
		if folder {
			t.leave(clean)
		}
		return
	case mask&unix.IN_MOVED_TO != 0 && t.cookie == cookie:
		t.tell(clean, Renamed)
	default:
		t.tell(clean, Created)
	}
	if folder {
		t.discover(clean)
	}
}

// discover watches a folder that has just come.
func (t *tree) discover(clean string) {
	dir, name := split(clean)
	d, err := t.all.files.folder(dir)
	if err != nil {
		return
	}
	defer d.close()
	if st, err := d.lstat(name); err == nil && isDir(&st) && !t.all.files.staging.hides(&st) {
		t.explore([]found{{clean, inodeOf(&st)}}, true)
	}
}

// restart looks at everything anew after events were lost.
func (t *tree) restart() error {
	for wd := range t.paths {
		_, _ = unix.InotifyRmWatch(t.fd, uint32(wd))
		t.forget(wd)
	}
	err := t.begin()
	t.lose()
	return err
}

// lose tells all Watches that something went unseen.
func (t *tree) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.watches {
		w.mu.Lock()
		w.lose()
		w.mu.Unlock()
	}
}

// outgrow notes that there are folders that aren't watched. Who watches since
// before is told; the others find it in Partial.
func (t *tree) outgrow() {
	if t.partial.Swap(true) {
		return
	}
	select {
	case <-t.ready:
		t.lose()
	default:
	}
}
