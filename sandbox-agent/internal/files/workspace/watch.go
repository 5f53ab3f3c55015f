package workspace

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxPending bounds the paths of a Watch that wait for their reader.
	maxPending = 1024
	// coalesceFor is how long changes are gathered after the first.
	coalesceFor = 50 * time.Millisecond
)

// Values of [protocol.FileChange.Type].
const (
	Created = "created" // also: has taken the place of another
	Changed = "changed"
	Removed = "removed" // also: has moved away
	Renamed = "renamed" // has come from elsewhere in the watched folder
)

// ErrClosed is what Next returns after Close of the Watch or of the FS.
var ErrClosed = errors.New("workspace: the watch is closed")

// Changes are what happened since the last ones, each path once.
type Changes struct {
	List []protocol.FileChange
	// Overflow says that more happened than was kept: the folder must be
	// listed again.
	Overflow bool
}

// A Watch tells what changes in a folder. Close it. Next is for one goroutine.
type Watch struct {
	tree *tree
	wake chan struct{} // holds one token while there is something to take

	mu       sync.Mutex
	pending  map[string]string // guarded by mu: path to type
	order    []string          // guarded by mu: of pending
	overflow bool              // guarded by mu
	ended    error             // guarded by mu: why nothing more will come
}

// watches are all Watches of an FS. Those of one folder share a tree.
type watches struct {
	files   *reader      // static after construction
	folders atomic.Int64 // how many more may be watched

	mu     sync.Mutex
	trees  map[treeKey]*tree // guarded by mu
	count  int               // guarded by mu: of Watches
	closed bool              // guarded by mu
}

type treeKey struct {
	clean string
	deep  bool
}

// join adds a Watch to the tree of key, which is made when there is none.
func (ws *watches) join(key treeKey) (*Watch, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return nil, protocol.Errorf(protocol.KindUnavailable, "the workspace is closed")
	}
	if ws.count >= ws.files.o.MaxWatches {
		return nil, protocol.Errorf(protocol.KindTooMany, "%d watches are open", ws.count)
	}
	t := ws.trees[key]
	if t == nil {
		var err error
		if t, err = newTree(ws, key); err != nil {
			return nil, err
		}
		ws.trees[key] = t
		go t.run() // the last Close waits for it
	}
	w := &Watch{tree: t, wake: make(chan struct{}, 1), pending: make(map[string]string)}
	t.mu.Lock()
	t.watches[w] = struct{}{}
	w.ended = t.ended
	t.mu.Unlock()
	ws.count++
	return w, nil
}

// Close ends w. It may be called again.
func (w *Watch) Close() {
	t := w.tree
	ws := t.all
	ws.mu.Lock()
	t.mu.Lock()
	_, open := t.watches[w]
	delete(t.watches, w)
	last := len(t.watches) == 0
	t.mu.Unlock()
	if open {
		ws.count--
	}
	if open && last {
		ws.drop(t)
	}
	ws.mu.Unlock()
	w.finish(ErrClosed)
	if last {
		t.stop()
	}
}

// drop lets the next Watch of t's folder have a new tree. ws.mu is held.
func (ws *watches) drop(t *tree) {
	if ws.trees[t.key] == t {
		delete(ws.trees, t.key)
	}
}

// close ends all Watches.
func (ws *watches) close() {
	ws.mu.Lock()
	ws.closed = true
	var trees []*tree
	for _, t := range ws.trees {
		trees = append(trees, t)
	}
	ws.mu.Unlock()
	for _, t := range trees {
		t.finish(ErrClosed)
		t.stop()
	}
}

// Partial reports whether the folder holds more folders than can be watched, so
// that changes may go unseen. When that comes to be so, the next Changes have
// Overflow.
func (w *Watch) Partial() bool { return w.tree.partial.Load() }

// Path returns the watched folder as answers spell it.
func (w *Watch) Path() string { return shown(w.tree.key.clean) }

// Next waits for changes. What follows the first within 50 ms comes with it. It
// returns KindNotFound when the folder itself is gone, and what ctx says when
// that ends before the first.
func (w *Watch) Next(ctx context.Context) (Changes, error) {
	select {
	case <-w.wake:
	case <-ctx.Done():
		return Changes{}, ctx.Err()
	}
	if w.end() == nil {
		gather := time.NewTimer(coalesceFor)
		defer gather.Stop()
		select {
		case <-gather.C:
		case <-ctx.Done(): // what there is, is taken
		}
	}
	return w.take()
}

func (w *Watch) take() (Changes, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 && !w.overflow && w.ended != nil {
		w.signal() // the next call learns it, too
		return Changes{}, w.tree.all.files.fault(w.ended)
	}
	c := Changes{Overflow: w.overflow}
	for _, path := range w.order {
		c.List = append(c.List, protocol.FileChange{Path: path, Type: w.pending[path]})
	}
	clear(w.pending)
	w.order, w.overflow = nil, false
	if w.ended != nil {
		w.signal()
	}
	return c, nil
}

func (w *Watch) end() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// add notes a change. A path keeps its place among the others.
func (w *Watch) add(path, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overflow {
		return
	}
	before, known := w.pending[path]
	switch {
	case known && before != Removed && kind == Changed:
		return // whoever learns that it is new reads it anew
	case !known && len(w.order) == maxPending:
		w.lose()
		return
	case !known:
		w.order = append(w.order, path)
	}
	w.pending[path] = kind
	w.signal()
}

// lose puts an overflow in the place of all that waits. w.mu is held.
func (w *Watch) lose() {
	clear(w.pending)
	w.order, w.overflow = nil, true
	w.signal()
}

func (w *Watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// finish lets nothing more come after what waits.
func (w *Watch) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = err
	}
	w.signal()
}

// newTree returns a tree that watches nothing yet. Its run must be started.
func newTree(all *watches, key treeKey) (*tree, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, &protocol.Error{Kind: protocol.KindUnavailable, Message: "no more folders can be watched", Err: err}
	}
	return &tree{
		all: all, key: key, fd: fd, events: os.NewFile(uintptr(fd), "inotify"),
		ready: make(chan struct{}), done: make(chan struct{}),
		watches: make(map[*Watch]struct{}),
		paths:   make(map[int32]string), wds: make(map[string]int32),
	}, nil
}
