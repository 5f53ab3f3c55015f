package reverseproxy

import (
	"errors"
	"io"
	"net/http"
)

// pieceBytes is how much of an answer is passed on at once when it is there.
const pieceBytes = 4 << 10

// pieces are the buffers for that. Who waits has none.
var pieces = &buffers{size: pieceBytes}

// A later is the body of an answer whose header has gone out already. It is passed on
// when [httputil.ReverseProxy] has returned, with all that it holds, by a goroutine
// that waits with next to nothing on its stack: that of a connection is deep, and the
// collector gives back what isn't used of a stack, but never less than half.
type later struct {
	resp      *http.Response
	body      io.ReadCloser
	raw       *directBody // what the body is read from
	endless   bool        // its length isn't known
	announced int         // trailers
}

// postpone takes the body from an answer that is about to be passed on.
func postpone(resp *http.Response, raw *directBody) *later {
	l := &later{resp: resp, body: resp.Body, raw: raw, endless: resp.ContentLength < 0, announced: len(resp.Trailer)}
	resp.Body = http.NoBody
	return l
}

// pass passes the body on. It panics with [http.ErrAbortHandler] if there isn't all of
// it, so that nobody takes half of it for the whole.
func (l *later) pass(out *pacedWriter) {
	whole := make(chan bool)
	go l.copy(out, whole)
	if !<-whole {
		panic(http.ErrAbortHandler)
	}
	l.trail(out.Header())
}

// copy copies the body, each piece when it comes, and says whether it came to its end.
func (l *later) copy(out *pacedWriter, whole chan<- bool) {
	defer l.body.Close()
	l.resp.Header, l.resp.Request = nil, nil // which nobody needs any more
	err := out.FlushError()
	for err == nil {
		if l.endless {
			l.raw.await()
		}
		err = l.piece(out)
	}
	whole <- err == io.EOF
}

// piece passes on what is there of the body.
func (l *later) piece(out *pacedWriter) error {
	buf := pieces.Get()
	defer pieces.Put(buf)
	n, err := l.body.Read(buf)
	if n == 0 {
		return err
	}
	if _, broken := out.Write(buf[:n]); broken != nil {
		return errBroken
	}
	if out.FlushError() != nil {
		return errBroken
	}
	return err
}

// errBroken is of a client that takes nothing any more.
var errBroken = errors.New("request: the client is gone")

// trail adds the trailers, which are known by now, to a header.
func (l *later) trail(h http.Header) {
	prefix := ""
	if len(l.resp.Trailer) != l.announced {
		prefix = http.TrailerPrefix
	}
	for name, values := range l.resp.Trailer {
		h[prefix+name] = values
	}
}
