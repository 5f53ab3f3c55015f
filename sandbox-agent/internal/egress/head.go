package egress

import (
	"bytes"
	"errors"
	"strings"
)

// errHead says that a head is not one that all programs read alike.
var errHead = errors.New("malformed request")

// A head is what the proxy itself reads of a request.
type head struct {
	bytes         int // of the head, with the empty line
	method        string
	target        string
	host          string // of the Host field; hasHost says whether there is one
	hasHost       bool
	authorization string // of the Proxy-Authorization field
}

// parseHead reads the head of a request, whose last bytes are an empty line.
// It is stricter than net/http, which repairs what a proxy must not pass on
// or decide upon: a length beside an encoding, folded lines, bare line feeds,
// several hosts.
func parseHead(text []byte) (head, error) {
	h := head{bytes: len(text)}
	lines := strings.Split(strings.TrimSuffix(string(text), "\r\n\r\n"), "\r\n")
	first := strings.Split(lines[0], " ")
	if len(first) != 3 || !isToken(first[0]) || first[1] == "" || (first[2] != "HTTP/1.1" && first[2] != "HTTP/1.0") || !printable(lines[0]) {
		return head{}, errHead
	}
	h.method, h.target = first[0], first[1]
	var length, encoding string
	seen := map[string]bool{}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) || !printable(value) {
			return head{}, errHead
		}
		name, value = strings.ToLower(name), strings.Trim(value, " \t")
		var field *string
		switch name {
		case "host":
			field = &h.host
		case "content-length":
			field = &length
		case "transfer-encoding":
			field = &encoding
		case "proxy-authorization":
			field = &h.authorization
		default:
			continue
		}
		if seen[name] {
			return head{}, errHead
		}
		seen[name] = true
		*field = value
	}
	h.hasHost = seen["host"]
	switch {
	case seen["content-length"] && (strings.Trim(length, "0123456789") != "" || length == ""),
		seen["transfer-encoding"] && (!strings.EqualFold(encoding, "chunked") || seen["content-length"] || first[2] == "HTTP/1.0"),
		!h.hasHost && first[2] == "HTTP/1.1":
		return head{}, errHead
	}
	return h, nil
}

// isToken reports whether text is a token of HTTP: a method or the name of a
// field.
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		if c >= 0x7f || c <= ' ' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return text != ""
}

// printable reports whether text has no control characters but tabs.
func printable(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

var emptyLine = []byte("\r\n\r\n")

// headEnd returns how many bytes of b are the head of a request, 0 while it
// goes on, or errHead when it can't become one.
func headEnd(b []byte) (int, error) {
	if len(b) > 0 && (b[0] < 'A' || b[0] > 'z') {
		return 0, errHead
	}
	end := bytes.Index(b, emptyLine)
	if end >= 0 {
		return end + len(emptyLine), nil
	}
	// A client that ends lines otherwise would wait, and so would we.
	if bytes.Count(b, []byte("\n")) != bytes.Count(b, []byte("\r\n")) {
		return 0, errHead
	}
	return 0, nil
}
