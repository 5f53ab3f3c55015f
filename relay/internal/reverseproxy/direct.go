package reverseproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/tunnel"
)

const (
	// maxAnswerHeader bounds the header of an answer, in bytes.
	maxAnswerHeader = 256 << 10
	// directBytes is the size of the buffer that each stream of a direct has. It bounds
	// the lines before chunks, and all trailers.
	directBytes = 512
)

// A direct sends each request that is nothing but a header on a stream of its own,
// and every other one by rest. The goroutine that asks reads the answer as well:
// [http.Transport] has two more for a stream, whose stacks and buffers are most of
// what an answer costs that seldom has anything to say.
type direct struct {
	// timeout bounds the wait for an answer; 0: until the request's context ends.
	timeout time.Duration
	rest    http.RoundTripper
}

// isBare reports whether a request is nothing but a header, and asks for no other
// protocol.
func isBare(r *http.Request) bool {
	return (r.Body == nil || r.Body == http.NoBody) && r.Header.Get("Upgrade") == ""
}

// RoundTrip implements [http.RoundTripper].
func (d *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isBare(r) {
		return d.rest.RoundTrip(r)
	}
	ctx := r.Context()
	stream, err := open(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	limited := &io.LimitedReader{R: stream, N: maxAnswerHeader}
	from := bufio.NewReaderSize(limited, directBytes)
	resp, err := d.ask(stream, r, limited, from)
	if err != nil {
		stop()
		stream.Close()
		return nil, err
	}
	if resp.Body == http.NoBody {
		stop()
		stream.Close()
		return resp, nil
	}
	resp.Body = &directBody{ReadCloser: resp.Body, from: from, stream: stream}
	return resp, nil
}

// ask sends r and reads the header of the answer.
func (d *direct) ask(stream *tunnel.Stream, r *http.Request, limited *io.LimitedReader, from *bufio.Reader) (*http.Response, error) {
	if err := r.Write(stream); err != nil {
		return nil, fmt.Errorf("request: not sent: %w", err)
	}
	if d.timeout > 0 {
		stream.SetReadDeadline(time.Now().Add(d.timeout))
		defer stream.SetReadDeadline(time.Time{})
	}
	for {
		resp, err := http.ReadResponse(from, r)
		switch {
		case err != nil && limited.N <= 0:
			return nil, fmt.Errorf("request: the header of the answer is over %d bytes", maxAnswerHeader)
		case err != nil:
			return nil, fmt.Errorf("request: no answer: %w", err)
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errUnasked
		case resp.StatusCode >= 200: // what came before are hints, which nobody gets
			limited.N = math.MaxInt64
			return resp, nil
		}
	}
}

// errUnasked is of a sandbox that changes the protocol by itself.
var errUnasked = errors.New("request: an upgrade that nobody asked for")

// A directBody is an answer's body, with which its stream ends.
type directBody struct {
	io.ReadCloser
	from   *bufio.Reader // of the stream
	stream *tunnel.Stream
}

// Close implements [io.Closer]. The rest of the body isn't read.
func (b *directBody) Close() error {
	return b.stream.Close()
}

// await waits until there is something to read, be it the end, of a body whose length
// isn't known. It takes less memory than reading does.
func (b *directBody) await() {
	if b.from.Buffered() == 0 {
		b.stream.Shrink()
	}
	b.from.Peek(1)
}
