package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func watching(t testing.TB, s *FS, path string, recursive bool) *Watch {
	t.Helper()
	w, err := s.Watch(path, recursive)
	want(t, err)
	t.Cleanup(w.Close)
	return w
}

// wantChanges waits until each path had its type, whatever else comes.
func wantChanges(t testing.TB, w *Watch, expect ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	missing := make(map[string]bool)
	for _, e := range expect {
		missing[e] = true
	}
	var seen []protocol.FileChange
	for len(missing) > 0 {
		changes, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%v: missing %v, seen %v", err, missing, seen)
		}
		for _, c := range changes.List {
			delete(missing, c.Type+" "+c.Path)
		}
		seen = append(seen, changes.List...)
	}
}

func TestWatch(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/b/f=x", "beside=x")
	w := watching(t, s, "a", true)
	put(t, dir, "a/new=x", "a/b/f=changed", "beside=y")
	wantChanges(t, w, "created /a/new", "changed /a/b/f")
	want(t, os.Rename(dir+"/a/new", dir+"/a/b/moved"))
	wantChanges(t, w, "removed /a/new", "renamed /a/b/moved")
	put(t, dir, "a/deep/er/f=x")
	wantChanges(t, w, "created /a/deep", "created /a/deep/er", "created /a/deep/er/f")
	put(t, dir, "a/deep/er/f=y")
	wantChanges(t, w, "changed /a/deep/er/f")
	want(t, os.Rename(dir+"/a/deep", dir+"/a/b/deep"))               // what is below is watched where it is
	wantChanges(t, w, "renamed /a/b/deep", "created /a/b/deep/er/f") // the latter once it is watched
	put(t, dir, "a/b/deep/er/f=z")
	wantChanges(t, w, "changed /a/b/deep/er/f")
	want(t, os.RemoveAll(dir+"/a/b"))
	wantChanges(t, w, "removed /a/b")
	put(t, dir, "a/b/g=x")
	wantChanges(t, w, "created /a/b", "created /a/b/g")
	_, err := s.Write("a/own", strings.NewReader("x"), WriteOptions{})
	want(t, err)
	wantChanges(t, w, "created /a/own")
	want(t, os.RemoveAll(dir+"/a"))
	wantChanges(t, w, "removed /a")
	_, err = w.Next(background)
	wantKind(t, err, protocol.KindNotFound)
	_, err = w.Next(background)
	wantKind(t, err, protocol.KindNotFound)
	if n := s.watches.folders.Load(); n != DefaultMaxWatched {
		w.Close()
		if n := s.watches.folders.Load(); n != DefaultMaxWatched {
			t.Errorf("%d folders could be watched", n)
		}
	}
}

func TestWatchOfOneFolder(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "d/")
	w := watching(t, s, "/", false)
	put(t, dir, "d/unseen=x", "f=x")
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	changes, err := w.Next(ctx)
	if err != nil || len(changes.List) != 1 || changes.List[0] != (protocol.FileChange{Path: "/f", Type: Created}) {
		t.Errorf("%+v, %v", changes, err)
	}
}

func TestWatchesShareATree(t *testing.T) {
	s, dir := open(t, func(o *Options) { o.MaxWatches = 3 })
	put(t, dir, "a/b/")
	first, second := watching(t, s, "/", true), watching(t, s, "/", true)
	if first.tree != second.tree || DefaultMaxWatched-s.watches.folders.Load() != 3 {
		t.Error("they have a tree each")
	}
	watching(t, s, "/a", true)
	_, err := s.Watch("/", false)
	wantKind(t, err, protocol.KindTooMany)
	put(t, dir, "a/f=x")
	wantChanges(t, first, "created /a/f")
	first.Close()
	first.Close()
	wantChanges(t, second, "created /a/f")
	put(t, dir, "a/g=x")
	wantChanges(t, second, "created /a/g")
	if _, err := first.Next(background); err != nil && !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	want(t, s.Close())
	for {
		if _, err := second.Next(background); err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			break
		}
	}
	_, err = s.Watch("/", true)
	wantKind(t, err, protocol.KindUnavailable)
}

func TestASlowWatchIsToldToListAgain(t *testing.T) {
	s, dir := open(t)
	slow, quick := watching(t, s, "/", true), watching(t, s, "/", true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			changes, err := quick.Next(background)
			if err != nil || changes.Overflow {
				return
			}
			for _, c := range changes.List {
				if c.Path == "/last" {
					return
				}
			}
		}
	}()
	for i := range maxPending + 1 {
		put(t, dir, fmt.Sprintf("f%d=", i))
	}
	put(t, dir, "last=")
	<-done
	changes, err := slow.Next(background)
	if err != nil || !changes.Overflow || len(changes.List) != 0 {
		t.Errorf("%d changes, %v, %v", len(changes.List), changes.Overflow, err)
	}
	put(t, dir, "again=")
	wantChanges(t, slow, "created /again")
}

func TestWatchLimit(t *testing.T) {
	s, dir := open(t, func(o *Options) { o.MaxWatched = 4 })
	put(t, dir, "a/", "b/", "c/", "d/", "e/")
	w := watching(t, s, "/", true)
	if !w.Partial() {
		t.Error("it seems to see everything")
	}
	put(t, dir, "f=x")
	wantChanges(t, w, "created /f")
	w.Close()
	if n := s.watches.folders.Load(); n != 4 {
		t.Errorf("%d of 4 folders are free", n)
	}
}

func TestAWatchThatOutgrowsTheLimitSaysSo(t *testing.T) {
	s, dir := open(t, func(o *Options) { o.MaxWatched = 3 })
	w := watching(t, s, "/", true)
	if w.Partial() {
		t.Error("it seems to see less than everything")
	}
	put(t, dir, "a/", "b/", "c/", "d/")
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	for {
		changes, err := w.Next(ctx)
		want(t, err)
		if changes.Overflow {
			break
		}
	}
	if !w.Partial() {
		t.Error("it seems to see everything")
	}
	put(t, dir, "f=x") // what is watched goes on
	wantChanges(t, w, "created /f")
}

// What the kernel lost is made up for by looking anew.
func TestWatchAfterLostEvents(t *testing.T) {
	s, dir := open(t)
	put(t, dir, "a/")
	w := watching(t, s, "/", true)
	w.Close() // so that the test owns what run owns
	lost, err := newTree(&s.watches, treeKey{".", true})
	want(t, err)
	defer lost.events.Close()
	w = &Watch{tree: lost, wake: make(chan struct{}, 1), pending: make(map[string]string)}
	lost.watches[w] = struct{}{}
	want(t, lost.begin())
	put(t, dir, "b/")
	overflow := make([]byte, eventBytes)
	overflow[5] = 0x40 // IN_Q_OVERFLOW, little endian
	want(t, lost.handle(overflow))
	if len(lost.paths) != 3 {
		t.Errorf("%v are watched", lost.paths)
	}
	changes, err := w.take()
	if err != nil || !changes.Overflow {
		t.Errorf("%+v, %v", changes, err)
	}
}

func TestWatchLeadsNowhereElse(t *testing.T) {
	s, dir := open(t)
	outside := filepath.Join(dir, "../outside")
	put(t, dir, "a/b/", "../outside/sub/", "link=->../outside")
	_, err := s.Watch("link", true)
	wantKind(t, err, protocol.KindInvalid)
	w := watching(t, s, "/", true)
	want(t, os.Rename(dir+"/a", dir+"/c"))
	want(t, os.Symlink(outside, dir+"/a"))
	wantChanges(t, w, "created /a")
	put(t, outside, "canary=x", "sub/canary=x")
	put(t, dir, "end=x")
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	for seen := false; !seen; {
		changes, err := w.Next(ctx)
		want(t, err)
		for _, c := range changes.List {
			seen = seen || c.Path == "/end"
			if strings.Contains(c.Path, "canary") {
				t.Errorf("%s was seen", c.Path)
			}
		}
	}
}
