package egress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A requestBody is a request's body on its way to the host. The transport reads
// it on its own goroutine.
type requestBody struct {
	// Static after construction.
	from     io.Reader
	exchange *exchange

	// Owned by the reader.
	expects bool // the client waits for 100 Continue

	reading sync.Mutex // held while reading from the client's connection

	// Guarded by mu.
	mu   sync.Mutex
	done bool  // read to the end
	err  error // otherwise the reason
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.broken() {
		return 0, errShut
	}
	c := b.exchange.client
	if b.expects {
		b.expects = false
		if _, err := c.conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return 0, err
		}
	}
	n, err := b.from.Read(p)
	c.p.counters.sent.Add(uint64(n))
	if err != nil {
		b.mu.Lock()
		first := !b.done && b.err == nil
		b.done = b.done || errors.Is(err, io.EOF)
		if !b.done {
			b.err = err
		}
		watch := first && b.done
		b.mu.Unlock()
		if watch {
			b.exchange.gone.start()
		}
	}
	return n, err
}

// errShut says that a response ended before its request.
var errShut = errors.New("the response is over")

// shut stops reading an unneeded body. When it returns, the client's connection
// is free.
func (b *requestBody) shut() {
	b.mu.Lock()
	if !b.done && b.err == nil {
		b.err = errShut
	}
	b.mu.Unlock()
	conn := b.exchange.client.conn
	_ = conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection, which nobody reads
	b.reading.Lock()
	defer b.reading.Unlock()
	_ = conn.SetReadDeadline(time.Time{})
}

// Close leaves the rest unread: the client may send it for ever. The connection
// ends after the response.
func (b *requestBody) Close() error { return nil }

// ended reports whether the whole body was read.
func (b *requestBody) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// broken reports whether the client failed to send all of it.
func (b *requestBody) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// writeInterim forwards an interim (1xx) response.
func (c *client) writeInterim(status int, header http.Header) error {
	header = header.Clone()
	stripHopByHop(header)
	return c.writeHead(status, header)
}

// writeHead writes a response's header.
func (c *client) writeHead(status int, header http.Header) error {
	var out bytes.Buffer
	appendHead(&out, status, header)
	_, err := c.conn.Write(out.Bytes())
	return err
}

func appendHead(out *bytes.Buffer, status int, header http.Header) {
	fmt.Fprintf(out, "HTTP/1.1 %03d %s\r\n", status, http.StatusText(status))
	_ = header.Write(out) // to memory
	out.WriteString("\r\n")
}

// A framing says how the end of a response is marked.
type framing int

const (
	framedByLength  framing = iota // or a status or method without a body
	framedByChunks                 // HTTP/1.1 chunks
	framedByClosing                // by the end of the connection
)

// writeResponse streams a response. It reports whether all of it was written.
func (c *client) writeResponse(e *exchange, response *http.Response, keep bool) bool {
	header := response.Header.Clone()
	stripHopByHop(header)
	how := framedByLength
	bodiless := e.in.Method == http.MethodHead || response.StatusCode == http.StatusNoContent || response.StatusCode == http.StatusNotModified
	switch {
	case bodiless: // Content-Length stays what the host says
	case response.ContentLength >= 0:
		header.Set("Content-Length", strconv.FormatInt(response.ContentLength, 10))
	case e.old:
		header.Del("Content-Length")
		how, keep = framedByClosing, false
	default:
		header.Del("Content-Length")
		header.Set("Transfer-Encoding", "chunked")
		how = framedByChunks
	}
	if how == framedByChunks && len(response.Trailer) > 0 {
		names := make([]string, 0, len(response.Trailer))
		for name := range response.Trailer {
			names = append(names, name)
		}
		slices.Sort(names)
		header.Set("Trailer", strings.Join(names, ", "))
	}
	if !keep {
		header.Set("Connection", "close")
	}
	var out bytes.Buffer
	appendHead(&out, response.StatusCode, header)
	if _, err := c.conn.Write(out.Bytes()); err != nil {
		return false
	}
	return bodiless || c.writeBody(response, how)
}

// pieceBytes bounds one forwarded piece of a body.
const pieceBytes = 32 << 10

// writeBody writes each piece of a body as it comes.
func (c *client) writeBody(response *http.Response, how framing) bool {
	const room = len("8000\r\n")
	piece := make([]byte, room+pieceBytes+len("\r\n"))
	for {
		n, err := response.Body.Read(piece[room : room+pieceBytes])
		c.p.counters.got.Add(uint64(n))
		if n > 0 {
			from, to := room, room+n
			if how == framedByChunks {
				size := strconv.AppendInt(nil, int64(n), 16)
				from = room - len(size) - 2
				copy(piece[from:], size)
				copy(piece[room-2:], "\r\n")
				to += copy(piece[to:], "\r\n")
			}
			if _, err := c.conn.Write(piece[from:to]); err != nil {
				return false
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return how != framedByChunks || c.writeLastChunk(response.Trailer)
		case err != nil:
			return false // the connection ends short of the announced length
		}
	}
}

func (c *client) writeLastChunk(trailer http.Header) bool {
	trailer = trailer.Clone()
	stripHopByHop(trailer)
	var out bytes.Buffer
	out.WriteString("0\r\n")
	_ = trailer.Write(&out) // to memory
	out.WriteString("\r\n")
	_, err := c.conn.Write(out.Bytes())
	return err == nil
}
