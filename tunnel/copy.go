package tunnel

import (
	"errors"
	"io"
	"sync"
)

const (
	// smallCopy and largeCopy are the sizes of the buffers of [Copy], in bytes.
	smallCopy = 16 << 10
	largeCopy = 128 << 10
)

var (
	smallCopies = sync.Pool{New: func() any { return new([smallCopy]byte) }}
	largeCopies = sync.Pool{New: func() any { return new([largeCopy]byte) }}
)

// Copy is [io.Copy] for what may be a file or may be a conversation: each piece is
// passed on as soon as it is there, and the buffer is large only while full ones
// come, so that whoever waits holds little.
func Copy(to io.Writer, from io.Reader) (written int64, err error) {
	for {
		n, err := copySmall(to, from)
		written += n
		if !errors.Is(err, errMore) {
			return written, ended(err)
		}
		n, err = copyLarge(to, from)
		written += n
		if !errors.Is(err, errLess) {
			return written, ended(err)
		}
	}
}

// errMore and errLess say that a buffer of the other size is better.
var errMore, errLess = errors.New("tunnel: more comes"), errors.New("tunnel: less comes")

// ended makes the proper end no error.
func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

func copySmall(to io.Writer, from io.Reader) (written int64, err error) {
	buf := smallCopies.Get().(*[smallCopy]byte)
	defer smallCopies.Put(buf)
	for err == nil {
		var n int
		n, err = copyPiece(to, from, buf[:])
		written += int64(n)
		if err == nil && n == len(buf) {
			err = errMore
		}
	}
	return written, err
}

func copyLarge(to io.Writer, from io.Reader) (written int64, err error) {
	buf := largeCopies.Get().(*[largeCopy]byte)
	defer largeCopies.Put(buf)
	for err == nil {
		var n int
		n, err = copyPiece(to, from, buf[:])
		written += int64(n)
		if err == nil && n < smallCopy {
			err = errLess
		}
	}
	return written, err
}

// copyPiece copies what one read returns.
func copyPiece(to io.Writer, from io.Reader, buf []byte) (written int, err error) {
	n, err := from.Read(buf)
	if n == 0 {
		return 0, err
	}
	written, failed := to.Write(buf[:n])
	switch {
	case failed != nil:
		return written, failed
	case written != n:
		return written, io.ErrShortWrite
	}
	return written, err
}
