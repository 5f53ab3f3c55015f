package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

var (
	raceTime = flag.Duration("workspace.race", 4*time.Second, "how long TestSymlinkRace runs")
	raceSeed = flag.Uint64("workspace.seed", 0, "seed of TestSymlinkRace, 0: a new one")
)

const (
	canary   = "canary" // is in every name and content outside
	alienUID = 54321    // owns what is outside, when the test may give it away

	// stuckAfter is when a verb counts as blocked.
	stuckAfter = time.Minute
)

// TestSymlinkRace lets goroutines put files, folders, symlinks to outside and to
// inside, FIFOs, devices and hard links in each other's place, and now and then
// in the staging folder's, while every verb works on the same names. Nothing outside is read, changed, made or removed,
// and nothing blocks.
func TestSymlinkRace(t *testing.T) {
	seed := *raceSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: go test -run TestSymlinkRace -workspace.seed=%[1]d", seed)
	top := t.TempDir()
	outside := filepath.Join(top, "outside")
	put(t, outside, "canary-file=canary", "canary-folder/canary-inner=canary", "canary-folder/sub/canary-deep=canary")
	alien := os.Lchown(filepath.Join(outside, "canary-file"), alienUID, alienUID) == nil
	dir := filepath.Join(top, "workspace")
	put(t, dir, "pool/")
	s := reopen(t, dir, func(o *Options) { o.Own = func(uid uint32) bool { return uid != alienUID } })
	before := snapshot(t, outside)

	ctx, cancel := context.WithTimeout(background, *raceTime)
	defer cancel()
	r := &racer{t: t, s: s, dir: dir, outside: outside, alien: alien, ctx: ctx}
	var running sync.WaitGroup
	start := func(n uint64, f func(*rand.Rand)) {
		running.Go(func() {
			for rnd := rand.New(rand.NewPCG(seed, n)); ctx.Err() == nil && !t.Failed(); {
				f(rnd)
			}
		})
	}
	for i := range uint64(2) {
		start(i, r.swap)
	}
	start(5, r.exchange)
	start(6, r.unseat)
	for i := range uint64(6) { // most of them wait for the disk
		start(10+i, r.verb)
	}
	start(20, func(*rand.Rand) { r.one("read", "f", func() error { return r.read(nil, "f") }) })
	running.Wait()
	if after := snapshot(t, outside); after != before {
		t.Errorf("outside was\n%s\nand is\n%s", before, after)
	}
	for _, e := range []string{"read", "write", "listed", "removed", "moved", "packed", "uploaded", "made", "changes"} {
		if r.count(e).Load() == 0 {
			t.Errorf("nothing was %s, so nothing was tried", e)
		}
	}
	t.Logf("%d swaps; %d of %d calls did something; 0 escapes", r.swaps.Load(), r.useful.Load(), r.calls.Load())
}

type racer struct {
	t            *testing.T
	s            *FS
	dir, outside string
	alien        bool
	ctx          context.Context

	swaps, calls, useful atomic.Int64
	counts               sync.Map // name to *atomic.Int64
}

func (r *racer) count(name string) *atomic.Int64 {
	n, _ := r.counts.LoadOrStore(name, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// raceNames are all that is worked on; each may be anything at any time.
var raceNames = []string{"a", "b", "a/x", "b/x", "a/x/y", "f", "f/x", "canary-file", "a/canary-file", "a/canary-folder", "canary-inner", "a/canary-inner"}

func pick(rnd *rand.Rand) string { return raceNames[rnd.IntN(len(raceNames))] }

// swap makes something and puts it in the place of a name.
func (r *racer) swap(rnd *rand.Rand) {
	made := filepath.Join(r.dir, "pool", fmt.Sprint(rnd.Uint64()))
	r.make(rnd, made)
	place := filepath.Join(r.dir, pick(rnd))
	// The swapper itself must not follow its own symlinks to outside.
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return
	}
	defer root.Close()
	parent, err := root.OpenFile(filepath.Dir(strings.TrimPrefix(place, r.dir+"/")), openFolder, 0)
	if err == nil {
		defer parent.Close()
		fd, name := int(parent.Fd()), filepath.Base(place)
		if unix.Renameat2(unix.AT_FDCWD, made, fd, name, unix.RENAME_EXCHANGE) != nil {
			unix.Renameat2(unix.AT_FDCWD, made, fd, name, unix.RENAME_NOREPLACE)
		}
	}
	os.RemoveAll(made)
	r.swaps.Add(1)
}

// exchange puts what it has ready in the place of a name, and that in its place,
// many times faster than swap: it is to hit between the look and the open.
func (r *racer) exchange(rnd *rand.Rand) {
	ready := func(i int) string { return filepath.Join(r.dir, "pool", fmt.Sprint("ready-", i)) }
	r.swap(rnd)
	for range 50 {
		i := rnd.IntN(16)
		place := filepath.Join(r.dir, []string{"f", "a"}[rnd.IntN(2)])
		if unix.Renameat2(unix.AT_FDCWD, ready(i), unix.AT_FDCWD, place, unix.RENAME_EXCHANGE) != nil {
			os.RemoveAll(ready(i)) // what is there must not be written through
			r.make(rnd, ready(i))
			unix.Renameat2(unix.AT_FDCWD, ready(i), unix.AT_FDCWD, place, unix.RENAME_NOREPLACE)
		}
		r.swaps.Add(1)
	}
}

// unseat moves the staging folder away, as a terminal may, which can't remove it
// with what it holds; and puts something in its place, 20 times a second.
func (r *racer) unseat(rnd *rand.Rand) {
	made := filepath.Join(r.dir, "pool", fmt.Sprint("unseat-", rnd.Uint64()))
	os.Rename(filepath.Join(r.dir, Staging), made)
	r.make(rnd, filepath.Join(r.dir, Staging))
	r.swaps.Add(1)
	select {
	case <-r.ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	os.Remove(filepath.Join(made, ignoreName))
	os.Remove(made) // unless a write goes on in it
	aside, _ := filepath.Glob(filepath.Join(r.dir, asidePrefix+"*"))
	for _, path := range aside {
		os.RemoveAll(path)
	}
}

func (r *racer) make(rnd *rand.Rand, path string) {
	switch rnd.IntN(14) {
	case 0, 1:
		os.WriteFile(path, []byte("inside"), 0o664)
	case 2, 3, 4:
		for _, name := range []string{"x", "canary-file", "canary-inner"} {
			if rnd.IntN(2) == 0 {
				os.MkdirAll(path, 0o775)
				os.WriteFile(filepath.Join(path, name), []byte("inside"), 0o664)
			}
		}
		os.MkdirAll(filepath.Join(path, "x/y"), 0o775)
	case 5:
		os.Symlink(r.outside, path)
	case 6:
		os.Symlink([]string{"../outside", "../../outside", "../../outside/canary-folder"}[rnd.IntN(3)], path)
	case 7:
		os.Symlink(filepath.Join("../outside", []string{"canary-file", "new", "canary-folder/canary-inner"}[rnd.IntN(3)]), path)
	case 8:
		os.Symlink(pick(rnd), path)
	case 9:
		unix.Mkfifo(path, 0o666)
	case 10:
		unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) // has no end
	case 11:
		os.Symlink(filepath.Join(r.dir, pick(rnd)), path)
	case 12: // begins below the workspace, and ends outside
		os.Symlink(r.dir+[]string{"/../outside", "/a/../../outside", "/../outside/canary-file", "/a/x/../../../outside/canary-folder"}[rnd.IntN(4)], path)
	case 13:
		if r.alien {
			os.Link(filepath.Join(r.outside, "canary-file"), path)
		}
	}
}

// verb does one thing to one name, and fails the test when that blocks.
func (r *racer) verb(rnd *rand.Rand) {
	verbs := []struct {
		name string
		do   func(rnd *rand.Rand, path string) error
	}{
		{"read", r.read}, {"write", r.write}, {"listed", r.list}, {"removed", r.remove}, {"moved", r.move},
		{"packed", r.pack}, {"uploaded", r.upload}, {"made", r.mkdir}, {"changes", r.watch}, {"stat", r.stat},
	}
	v := verbs[rnd.IntN(len(verbs))]
	path := pick(rnd)
	r.one(v.name, path, func() error { return v.do(rnd, path) })
}

// one calls do, which is verb of path.
func (r *racer) one(verb, path string, do func() error) {
	stuck := time.AfterFunc(stuckAfter, func() { panic(fmt.Sprintf("%s of %s blocks", verb, path)) })
	defer stuck.Stop()
	err := do()
	r.calls.Add(1)
	if err == nil {
		r.useful.Add(1)
		r.count(verb).Add(1)
		return
	}
	if protocol.KindOf(err) == protocol.KindInternal && !errors.Is(err, context.DeadlineExceeded) {
		r.t.Errorf("%s of %s: %v (%v)", verb, path, err, errors.Unwrap(protocol.AsError(err)))
	}
}

// check fails the test when text holds what is outside. Inside there are names
// like those outside, but never that content, and not the inner ones.
func (r *racer) check(verb, text string) {
	if strings.Contains(text, "canary-deep") || text == canary {
		r.t.Errorf("%s led outside: %q", verb, text)
	}
}

func (r *racer) read(_ *rand.Rand, path string) error {
	text, err := read(r.s, path)
	r.check("read", text)
	return err
}

func (r *racer) write(rnd *rand.Rand, path string) error {
	_, err := r.s.Write(path, strings.NewReader("inside"), WriteOptions{NoReplace: rnd.IntN(3) == 0})
	return err
}

func (r *racer) list(rnd *rand.Rand, path string) error {
	return r.s.List(r.ctx, path, rnd.IntN(2) == 0, func(e protocol.FileInfo) error {
		r.check("list", e.Path)
		return nil
	})
}

func (r *racer) stat(_ *rand.Rand, path string) error {
	e, err := r.s.Stat(path)
	r.check("stat", e.Path)
	return err
}

func (r *racer) remove(_ *rand.Rand, path string) error { return r.s.Delete(r.ctx, path) }

func (r *racer) move(rnd *rand.Rand, path string) error {
	_, err := r.s.Move(path, pick(rnd), rnd.IntN(2) == 0)
	return err
}

func (r *racer) mkdir(_ *rand.Rand, path string) error {
	_, _, err := r.s.Mkdir(path)
	return err
}

func (r *racer) pack(rnd *rand.Rand, path string) error {
	var packed bytes.Buffer
	if rnd.IntN(2) == 0 {
		if err := r.s.Archive(r.ctx, path, Zip, nil, &packed); err != nil {
			return err
		}
		for _, e := range unpackZip(r.t, packed.Bytes()) {
			r.check("zip", strings.TrimPrefix(e[strings.Index(e, "="):], "="))
		}
		return nil
	}
	if err := r.s.Archive(r.ctx, path, TarGz, nil, &packed); err != nil {
		return err
	}
	for _, e := range unpackTar(r.t, packed.Bytes()) {
		r.check("tar", strings.TrimPrefix(e[strings.Index(e, "="):], "="))
	}
	return nil
}

func (r *racer) upload(_ *rand.Rand, path string) error {
	up, err := r.s.CreateUpload(UploadRequest{Path: path, Size: 6})
	if err != nil {
		return err
	}
	defer r.s.DropUpload(up.ID, "")
	if _, err = r.s.Append(up.ID, "", 0, strings.NewReader("ins"), nil); err == nil {
		_, err = r.s.Append(up.ID, "", 3, strings.NewReader("ide"), nil)
	}
	return err
}

func (r *racer) watch(rnd *rand.Rand, path string) error {
	w, err := r.s.Watch(path, rnd.IntN(2) == 0)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
	defer cancel()
	changes, err := w.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	for _, c := range changes.List {
		r.check("watch", c.Path)
	}
	return err
}

// snapshot returns all that is below dir, with content, owner and times.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	want(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		sum := []byte{}
		if isRegular(&st) {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			h := sha256.New()
			if _, err := io.Copy(h, f); err != nil {
				return err
			}
			sum = h.Sum(nil)[:8]
		}
		fmt.Fprintf(&all, "%s %s %d:%d %d %d %x\n", path, lsMode(st.Mode), st.Uid, st.Gid, st.Size, st.Mtim.Nano(), sum)
		return nil
	}))
	return all.String()
}
