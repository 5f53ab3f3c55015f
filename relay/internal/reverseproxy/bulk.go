package reverseproxy

import (
	"io"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/tunnel"
)

const (
	// bulkBytes is the least length of an answer, in bytes, that is passed on in
	// large pieces.
	bulkBytes = 256 << 10
	// slowPiece is how much is given at once to a client that takes its time, so
	// that its progress shows.
	slowPiece = 16 << 10
	// slowTime is how long a piece takes at such a client.
	slowTime = time.Second
)

// A bulk is the body of a long answer whose header was written already. It is passed
// on when [httputil.ReverseProxy] has returned, which would copy it in small pieces.
type bulk struct{ body io.ReadCloser }

// pass passes the body on. It panics with [http.ErrAbortHandler] if there isn't all of
// it.
func (b *bulk) pass(out *pacedWriter) {
	defer b.body.Close()
	if _, err := tunnel.Copy(&forwarding{out: out}, b.body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// A forwarding keeps nothing back of what is written to it.
type forwarding struct {
	out  *pacedWriter
	slow bool // the client took its time for the last piece
}

func (f *forwarding) Write(p []byte) (written int, err error) {
	for written < len(p) {
		piece := p[written:]
		if f.slow {
			piece = piece[:min(len(piece), slowPiece)]
		}
		began := time.Now()
		n, err := f.out.Write(piece)
		if written += n; err == nil {
			err = f.out.FlushError()
		}
		if err != nil {
			return written, err
		}
		f.slow = time.Since(began) > slowTime
	}
	return written, nil
}
