package workspace

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// maxArchived bounds the entries of an archive: so many names could be held.
const maxArchived = 1 << 20

// A Format is how a folder is packed.
type Format string

const (
	TarGz Format = "tar.gz" // symlinks are kept as they are
	Zip   Format = "zip"    // symlinks are left out
)

// Known reports whether f is a format of this version.
func (f Format) Known() bool { return f == TarGz || f == Zip }

// A Filter returns what stands in an archive for the content of file, and how
// many bytes that is at most; nil for the content itself. The caller closes file
// when it has read to the end.
type Filter func(file *File) (io.Reader, int64, error)

// Archive writes the folder path, with all below it, to w as it walks it. Files
// that change meanwhile have the size that they had: what is cut off is filled
// with zeros. FIFOs, sockets, devices, files with a name outside of the sandbox
// and what the agent may not read are left out. filter may be nil.
func (r *reader) Archive(ctx context.Context, path string, format Format, filter Filter, w io.Writer) error {
	clean, err := Clean(path)
	if err != nil {
		return err
	}
	d, err := r.listed(clean)
	if err != nil {
		return err
	}
	defer d.close()
	p := newPacker(format, w)
	top := len(clean) + 1
	if clean == "." {
		top = 0
	}
	visit := func(d folder, e entry) error { return r.pack(p, d, e, e.clean[top:], filter) }
	walk := walk{staging: r.staging, ctx: ctx, left: maxArchived, deep: true, visit: visit}
	if err := walk.folder(d, clean, 0); err != nil {
		return r.fault(err)
	}
	return p.close()
}

// pack adds one entry under name.
func (r *reader) pack(p packer, d folder, e entry, name string, filter Filter) error {
	head := header{name: name, mode: e.st.Mode & 0o777, modified: modified(&e.st)}
	switch {
	case isDir(&e.st):
		return p.folder(head)
	case isLink(&e.st):
		return p.link(head, e.target)
	case !isRegular(&e.st):
		return nil
	}
	file, err := r.settle(e.clean, func() (*os.File, error) { return d.open(e.name, openFile, 0) })
	if gone(err) || errors.Is(err, unix.EACCES) || protocol.KindOf(err) == protocol.KindForbidden ||
		errors.Is(err, errSpecial) || errors.Is(err, errRestive) {
		return nil // another one since we looked, or an alien
	}
	if err != nil {
		return err
	}
	defer file.Close()
	content, size := io.Reader(file), file.Info.Size
	if filter != nil {
		filtered, n, err := filter(file)
		if err != nil {
			return err
		}
		if filtered != nil {
			content, size = filtered, n
		}
	}
	return p.file(head, io.LimitReader(io.MultiReader(content, zeros{}), size), size)
}

// zeros is an endless source.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A header describes one entry. It names no owner.
type header struct {
	name     string
	mode     uint32
	modified time.Time
}

// A packer writes one kind of archive.
type packer interface {
	folder(h header) error
	link(h header, target string) error
	file(h header, content io.Reader, size int64) error
	close() error
}

func newPacker(format Format, w io.Writer) packer {
	if format == Zip {
		return zipPacker{zip.NewWriter(w)}
	}
	compressed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is one
	return tarPacker{tar.NewWriter(compressed), compressed}
}

type tarPacker struct {
	w          *tar.Writer
	compressed *gzip.Writer
}

func (p tarPacker) header(h header, kind byte, size int64, target string) error {
	return p.w.WriteHeader(&tar.Header{
		Typeflag: kind, Name: h.name, Linkname: target, Size: size, Mode: int64(h.mode),
		ModTime: h.modified.Truncate(time.Second), Format: tar.FormatPAX,
	})
}

func (p tarPacker) folder(h header) error {
	h.name += "/"
	return p.header(h, tar.TypeDir, 0, "")
}

func (p tarPacker) link(h header, target string) error {
	return p.header(h, tar.TypeSymlink, 0, target)
}

func (p tarPacker) file(h header, content io.Reader, size int64) error {
	if err := p.header(h, tar.TypeReg, size, ""); err != nil {
		return err
	}
	_, err := copyTo(p.w, content)
	return err
}

func (p tarPacker) close() error { return errors.Join(p.w.Close(), p.compressed.Close()) }

type zipPacker struct{ w *zip.Writer }

func (p zipPacker) create(h header, mode os.FileMode, method uint16) (io.Writer, error) {
	head := &zip.FileHeader{Name: h.name, Modified: h.modified, Method: method}
	head.SetMode(mode)
	return p.w.CreateHeader(head)
}

func (p zipPacker) folder(h header) error {
	h.name += "/"
	_, err := p.create(h, os.FileMode(h.mode)|os.ModeDir, zip.Store)
	return err
}

func (p zipPacker) link(header, string) error { return nil }

func (p zipPacker) file(h header, content io.Reader, _ int64) error {
	w, err := p.create(h, os.FileMode(h.mode), zip.Deflate)
	if err != nil {
		return err
	}
	_, err = copyTo(w, content)
	return err
}

func (p zipPacker) close() error { return p.w.Close() }

// Archivable reports why the folder path can't be packed, before its first byte.
func (r *reader) Archivable(path string) (protocol.FileInfo, error) {
	clean, err := Clean(path)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	d, err := r.listed(clean)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	defer d.close()
	st, err := d.stat()
	return info(clean, &st), r.fault(err)
}
