package broker

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// A headConn checks the header of a connection's one request. net/http silently
// drops a Content-Length if there is a Transfer-Encoding; such a request must
// be refused.
type headConn struct {
	net.Conn
	closed func()

	// Owned by Read until ended, then by nobody.
	seen    []byte
	ended   bool
	verdict atomic.Pointer[refusal] // set before the head's last byte is returned
}

func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.ended && n > 0 {
		c.look(p[:n])
	}
	return n, err
}

func (c *headConn) look(p []byte) {
	from := max(0, len(c.seen)-len("\n\r\n"))
	c.seen = append(c.seen, p...)
	end := headEnd(c.seen[from:])
	if end < 0 && len(c.seen) <= 2*maxHeadBytes {
		return
	}
	if end >= 0 {
		c.verdict.Store(checkHead(c.seen[:from+end]))
	}
	c.seen, c.ended = nil, true // net/http refuses a header that is too long
}

func (c *headConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// CloseWrite ends only the output, so that a client that is still sending can
// read a refusal.
func (c *headConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// headEnd returns the length of a header up to its empty line, -1 if there is
// none.
func headEnd(b []byte) int {
	end := -1
	for _, mark := range []string{"\n\r\n", "\n\n"} {
		if i := bytes.Index(b, []byte(mark)); i >= 0 && (end < 0 || i < end) {
			end = i
		}
	}
	return end
}

// checkHead refuses a header that two programs could parse as two requests.
func checkHead(head []byte) *refusal {
	var lengths, encodings int
	for i, line := range strings.Split(string(head), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.ContainsAny(line, "\r\x00") {
			return refuse(reasonInvalidRequest, "a line of the head holds a control character")
		}
		if i == 0 {
			continue
		}
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			return refuse(reasonInvalidRequest, "a header is continued on another line")
		}
		name, _, _ := strings.Cut(line, ":")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "content-length":
			lengths++
		case "transfer-encoding":
			encodings++
		}
	}
	if lengths+encodings > 1 {
		return refuse(reasonInvalidRequest, "the length of the body is given twice")
	}
	return nil
}

type headKey struct{}

func withHead(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, headKey{}, c)
}

// connOf returns the connection of a request.
func connOf(r *http.Request) *headConn {
	c, _ := r.Context().Value(headKey{}).(*headConn)
	return c
}
