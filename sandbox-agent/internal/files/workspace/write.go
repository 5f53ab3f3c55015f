package workspace

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const copyBytes = 128 << 10

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBytes); return &b }}

// WriteOptions say what a write may replace.
type WriteOptions struct {
	IfMatch   string // the header: ETags of which the file must have one, or "*"; "": any
	NoReplace bool   // there must be nothing yet
}

// Written is what came of a write.
type Written struct {
	Info    protocol.FileInfo
	Created bool // there was nothing before
}

// Write makes content the file path, in one step: whoever reads it reads the old
// content or the new one. Missing folders above are made. A symlink that stays
// inside is followed. The new file has the owner and permissions of the one that
// it replaces, or the owner of its folder, see [Options].
//
// More than MaxFileBytes are KindTooLarge, a full disk is KindNoSpace, a
// condition that isn't met KindConflict: in all cases, and when content ends
// with an error, the old file is as it was.
func (w *writer) Write(path string, content io.Reader, o WriteOptions) (Written, error) {
	clean, err := Clean(path)
	if err != nil {
		return Written{}, err
	}
	if err := w.foresee(clean, o); err != nil {
		return Written{}, w.fault(err)
	}
	t, err := w.staging.create(writePrefix + rand.Text())
	if err != nil {
		return Written{}, w.fault(err)
	}
	defer t.discard()
	if err := fill(t.f, content, w.o.MaxFileBytes); err != nil {
		return Written{}, w.fault(err)
	}
	written, err := w.put(t, clean, o)
	return written, w.fault(err)
}

// foresee returns the error that the write will end with as things are, before
// its content is read.
func (w *writer) foresee(clean string, o WriteOptions) error {
	d, name, err := w.target(clean, false)
	if errors.Is(err, unix.ENOENT) {
		if o.IfMatch != "" {
			return errMissing
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	_, err = w.replaceable(d, name, o)
	return err
}

// fill copies content to f, which is empty, and to the disk.
func fill(f *os.File, content io.Reader, limit int64) error {
	n, err := copyTo(&early{f: f}, io.LimitReader(content, limit+1))
	if err != nil {
		return err
	}
	if n > limit {
		return protocol.Errorf(protocol.KindTooLarge, "the file is over %d bytes", limit)
	}
	return f.Sync()
}

// copyTo is io.CopyBuffer without the shortcuts of its two ends. An error of
// content that has no kind becomes KindInvalid.
func copyTo(w io.Writer, content io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	var total int64
	for {
		n, err := content.Read(*buf)
		if n > 0 {
			m, err := w.Write((*buf)[:n])
			total += int64(m)
			if err != nil {
				return total, err
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			var known *protocol.Error
			if errors.As(err, &known) {
				return total, err
			}
			return total, &protocol.Error{Kind: protocol.KindInvalid, Message: "the content ended early", Err: err}
		}
	}
}

// replaceable returns what name in d is, nil when it is nothing, or why it can't
// be replaced.
func (w *writer) replaceable(d folder, name string, o WriteOptions) (*unix.Stat_t, error) {
	st, err := d.lstat(name)
	if errors.Is(err, unix.ENOENT) {
		if o.IfMatch != "" {
			return nil, errMissing
		}
		return nil, nil
	}
	switch {
	case err != nil:
		return nil, err
	case w.staging.hides(&st):
		return nil, unix.ENOENT
	case isDir(&st):
		return nil, unix.EISDIR
	case !isRegular(&st):
		return nil, protocol.Errorf(protocol.KindConflict, "there is something else than a file")
	case o.NoReplace:
		return nil, errThere
	case !matches(o.IfMatch, etag(&st)):
		return nil, errChanged
	}
	return &st, w.refuseAlien(&st)
}

// What conditions of a write may fail with.
var (
	errMissing = &protocol.Error{Kind: protocol.KindConflict, Message: "there is no such file any more", Err: ErrPrecondition}
	errThere   = &protocol.Error{Kind: protocol.KindConflict, Message: "there is something of that name already", Err: ErrPrecondition}
	errChanged = &protocol.Error{Kind: protocol.KindConflict, Message: "the file has changed", Err: ErrPrecondition}
)

// matches reports whether an If-Match header allows tag.
func matches(header, tag string) bool {
	if header == "" {
		return true
	}
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one == "*" || one == tag {
			return true
		}
	}
	return false
}

// put gives t the place clean.
func (w *writer) put(t *staged, clean string, o WriteOptions) (Written, error) {
	w.commit.Lock()
	d, old, err := w.place(t, clean, o)
	w.commit.Unlock()
	if err != nil {
		return Written{}, err
	}
	defer d.close()
	if err := d.sync(); err != nil {
		return Written{}, err
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(t.f.Fd()), &st) }); err != nil {
		return Written{}, err
	}
	return Written{Info: info(clean, &st), Created: old == nil}, nil
}

// place is put's part with commit held. It returns the folder, to be closed, and
// what t replaced.
func (w *writer) place(t *staged, clean string, o WriteOptions) (folder, *unix.Stat_t, error) {
	d, name, err := w.target(clean, true)
	if err != nil {
		return folder{}, nil, err
	}
	old, err := w.replaceable(d, name, o)
	if err == nil {
		err = w.dress(t.f, d, old)
	}
	if err == nil {
		err = t.dir.rename(t.name, d, name, !o.NoReplace)
	}
	if errors.Is(err, unix.EXDEV) {
		err = w.carry(t, d, name, old, !o.NoReplace)
	}
	if err != nil {
		d.close()
		if errors.Is(err, unix.EEXIST) && o.NoReplace {
			err = errThere
		}
		return folder{}, nil, err
	}
	t.name = ""
	return d, old, nil
}

// dress gives f the owner and permissions of old, or of a new file in d. The
// agent may not be allowed to give files away, then they are its own.
func (w *writer) dress(f *os.File, d folder, old *unix.Stat_t) error {
	uid, gid, mode := uint32(0), uint32(0), uint32(fileMode)
	if old != nil {
		uid, gid, mode = old.Uid, old.Gid, old.Mode&0o777
	} else {
		st, err := d.stat()
		if err != nil {
			return err
		}
		uid, gid = w.owner(&st)
	}
	give(f, uid, gid)
	return f.Chmod(os.FileMode(mode))
}

// carry is for a folder on another filesystem: t becomes a file there first.
func (w *writer) carry(t *staged, d folder, name string, old *unix.Stat_t, replace bool) error {
	temp := tempPrefix + rand.Text()
	f, err := d.open(temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = t.f.Seek(0, io.SeekStart); err == nil {
		_, err = copyTo(f, t.f)
	}
	if err == nil {
		err = errors.Join(w.dress(f, d, old), f.Sync())
	}
	if err == nil {
		err = d.rename(temp, d, name, replace)
	}
	if err != nil {
		f.Close()
		return errors.Join(err, d.unlink(temp))
	}
	t.f.Close()
	t.f = f
	_ = t.dir.unlink(t.name) // the next Open tries again
	return nil
}
