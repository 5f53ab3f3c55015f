package spill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	stopped   = "output is not spilled"
	recovered = "output is spilled again"
)

// TestSameSizeInTrouble has a resize that changes nothing come while nothing is
// written: it says nothing about where the log is, as at other times.
func TestSameSizeInTrouble(t *testing.T) {
	var disk faultyDisk
	s := open(t, Options{Dir: t.TempDir(), PerTerminal: 1, Total: 1, write: disk.write})
	f := s.Create(pty, epoch)
	f.Resize(2, 4, 9)
	disk.set(0, unix.ENOSPC)
	f.Append(2, stream(2, 3))
	disk.set(0, nil)
	f.Resize(5, 4, 9)
	f.Append(3, stream(3, 4)) // skipped: one byte is a segment's worth
	f.Append(4, stream(4, 5))
	wantHeld(t, f, 4, 5)
}

// TestFullDisk fails a write in the middle of a segment of 16 bytes.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	var disk faultyDisk
	var log journal
	s := open(t, Options{Dir: dir, Logger: log.logger(), write: disk.write})
	f := s.Create(pty, epoch)
	f.Append(0, stream(0, 20))
	disk.set(3, unix.ENOSPC)
	f.Append(20, stream(20, 30))
	wantHeld(t, f, 0, 20) // still there to be read
	if got := onDisk(t, dir); s.Bytes() != 20 || got["pty_1/00000000000000000016.log"] != 4 {
		t.Errorf("%d bytes; on disk: %v", s.Bytes(), got)
	}
	f.Append(30, stream(30, 45))
	f.Resize(45, 100, 30)
	f.Append(45, stream(45, 46)) // 16 are skipped
	wantHeld(t, f, 0, 20)
	f.Append(46, stream(46, 50)) // tries again, in vain
	wantHeld(t, f, 46, 46)
	if n := s.Bytes(); n != 0 {
		t.Errorf("%d bytes", n)
	}
	disk.set(0, nil)
	f.Append(50, stream(50, 66)) // skipped
	wantHeld(t, f, 46, 46)
	f.Append(66, stream(66, 81))
	wantHeld(t, f, 66, 81)
	if cols, rows, ok := f.SizeAt(66); !ok || cols != 100 || rows != 30 {
		t.Errorf("SizeAt(66) = %d×%d, %t", cols, rows, ok)
	}
	if log.count(stopped) != 1 || log.count(recovered) != 0 {
		t.Errorf("logged:\n%s", log.buf.String())
	}
	f.Append(81, stream(81, 82))
	if log.count(stopped) != 1 || log.count(recovered) != 1 {
		t.Errorf("logged:\n%s", log.buf.String())
	}
	disk.set(0, unix.EIO) // another incident
	f.Append(82, stream(82, 90))
	wantHeld(t, f, 66, 82)
	if log.count(stopped) != 2 {
		t.Errorf("logged:\n%s", log.buf.String())
	}
}

// TestOverlapAfterATrouble: what comes again from before the new run, where
// the sizes are not known any more, is skipped.
func TestOverlapAfterATrouble(t *testing.T) {
	var disk faultyDisk
	f := open(t, Options{write: disk.write}).Create(pty, epoch)
	f.Append(0, stream(0, 20))
	disk.set(0, unix.ENOSPC)
	f.Append(20, stream(20, 30))
	disk.set(0, nil)
	f.Append(30, stream(30, 40))
	f.Resize(40, 100, 30)
	f.Resize(35, 7, 7) // too late
	f.Append(40, stream(40, 50))
	f.Append(0, stream(0, 60))
	wantHeld(t, f, 50, 60)
	if cols, rows, ok := f.SizeAt(50); !ok || cols != 100 || rows != 30 {
		t.Errorf("SizeAt(50) = %d×%d, %t", cols, rows, ok)
	}
}

// TestFullDiskAtASegmentsStart leaves no file behind that isn't held.
func TestFullDiskAtASegmentsStart(t *testing.T) {
	dir := t.TempDir()
	var disk faultyDisk
	s := open(t, Options{Dir: dir, write: disk.write})
	f := s.Create(pty, epoch)
	f.Append(0, stream(0, 16))
	disk.set(5, unix.ENOSPC)
	f.Append(16, stream(16, 30))
	wantHeld(t, f, 0, 16)
	want := map[string]int64{"pty_1/00000000000000000000.log": 16}
	if got := onDisk(t, dir); !maps.Equal(got, want) || s.Bytes() != 16 {
		t.Errorf("on disk: %v, want %v", got, want)
	}
}

// TestUntrustedTail: a part of a write that can't be taken away costs the run.
func TestUntrustedTail(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	f := s.Create(pty, epoch)
	f.Append(0, stream(0, 20))
	s.o.write = func(w io.Writer, p []byte) (int, error) {
		w.(*os.File).Close()
		return 0, unix.EIO
	}
	f.Append(20, stream(20, 22))
	wantHeld(t, f, 20, 20)
	if got := onDisk(t, dir); len(got) != 0 || s.Bytes() != 0 {
		t.Errorf("on disk: %v", got)
	}
}

// TestRemovedUnderneath: somebody else cleans up, or cuts a file.
func TestRemovedUnderneath(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"removed": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var log journal
			s := open(t, Options{Dir: dir, Logger: log.logger()})
			f := s.Create(pty, epoch)
			f.Append(0, stream(0, 40))
			if err := damage(filepath.Join(dir, pty, "00000000000000000016.log")); err != nil {
				t.Fatal(err)
			}
			wantGone(t, f, 20, 32)
			wantHeld(t, f, 32, 40)
			if err := damage(filepath.Join(dir, pty, "00000000000000000032.log")); err != nil {
				t.Fatal(err)
			}
			wantGone(t, f, 36, 40)
			f.Append(40, stream(40, 50)) // its last segment is lost, its place is not
			wantHeld(t, f, 40, 50)
			if n := log.count("gone from the disk"); n != 2 {
				t.Errorf("%d lines logged", n)
			}
			if name == "cut" {
				return
			}
			if err := os.RemoveAll(filepath.Join(dir, pty)); err != nil {
				t.Fatal(err)
			}
			f.Append(50, stream(50, 60)) // begins a segment: makes the directory anew
			wantGone(t, f, 40, 56)
			wantHeld(t, f, 56, 60)
		})
	}
}

// TestUnreadableForNow: an error that may pass costs nothing.
func TestUnreadableForNow(t *testing.T) {
	dir := t.TempDir()
	f := open(t, Options{Dir: dir}).Create(pty, epoch)
	f.Append(0, stream(0, 10))
	path := filepath.Join(dir, pty, "00000000000000000000.log")
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	n, next, err := f.Read(0, make([]byte, 10))
	if n != 0 || next != nil || !errors.Is(err, unix.EISDIR) {
		t.Errorf("Read = %d, %v, %v", n, next, err)
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, f, 0, 10)
}

// TestForeignFile: what is not ours is not written to.
func TestForeignFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	f := s.Create(pty, epoch)
	path := filepath.Join(dir, pty, "00000000000000000000.log")
	writeFile(t, path)
	f.Append(0, stream(0, 10))
	wantHeld(t, f, 0, 0)
	if b, err := os.ReadFile(path); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestNoRoomAmongWrites: when writes under way take the whole limit, a terminal
// goes without rather than beyond it.
func TestNoRoomAmongWrites(t *testing.T) {
	var log journal
	s := open(t, Options{Total: 8, Logger: log.logger()}) // segments of 1
	other := s.Create("other", epoch)
	s.o.write = func(w io.Writer, p []byte) (int, error) {
		s.o.write = io.Writer.Write
		s.mu.Lock()
		s.bytes += 7 // as 7 others do
		s.mu.Unlock()
		other.Append(0, stream(0, 1))
		s.mu.Lock()
		s.bytes -= 7
		s.mu.Unlock()
		return w.Write(p)
	}
	f := s.Create(pty, epoch)
	f.Append(0, stream(0, 1))
	wantHeld(t, f, 0, 1)
	wantHeld(t, other, 0, 0)
	if log.count(stopped) != 1 || log.count("limit for all terminals") != 1 {
		t.Errorf("logged:\n%s", log.buf.String())
	}
}

// TestRealFullDisk fills a file system of 256 KiB. It needs the privilege to
// mount one.
func TestRealFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=256k,mode=0700")
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("may not mount here")
	}
	if err != nil {
		t.Fatal(err)
	}
	var log journal
	s := open(t, Options{Dir: dir, PerTerminal: 512 << 10, Total: 1 << 20, Logger: log.logger()}) // segments of 64 KiB
	// The store's directory keeps it mounted from here on, so that it is gone
	// however the test ends.
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	f := s.Create(pty, protocol.Epoch(1))
	const chunk = 5000
	var offset uint64
	write := func(n int) {
		for range n {
			f.Append(offset, stream(offset, offset+chunk))
			offset += chunk
		}
	}
	write(100) // twice what fits
	if log.count(stopped) == 0 || log.count(fmt.Sprint(unix.ENOSPC)) == 0 {
		t.Fatalf("logged:\n%s", log.buf.String())
	}
	for range 10 {
		write(50)
		oldest, _ := f.Oldest()
		wantHeld(t, f, oldest, f.Head())
		if n := s.Bytes(); n > 256<<10 || n != int64(f.Head()-oldest) {
			t.Fatalf("%d bytes are counted, [%d, %d) is held", n, oldest, f.Head())
		}
	}
	if log.count(recovered) == 0 {
		t.Errorf("logged:\n%s", log.buf.String())
	}
}
