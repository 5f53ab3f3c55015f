package egress

import (
	"bytes"
	"errors"
	"strings"
)

// errHead says that programs could parse a header differently.
var errHead = errors.New("malformed request")

// A head is the part of a request's header that the proxy uses.
type head struct {
	bytes         int // of the header, with the empty line
	method        string
	target        string
	host          string // of the Host field; hasHost says whether there is one
	hasHost       bool
	authorization string // of the Proxy-Authorization field
}

// parseHead parses a request's header, which ends with an empty line. It is
// stricter than net/http, which repairs what a proxy must neither forward nor
// judge: a length besides an encoding, folded lines, bare line feeds, several
// hosts.
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

// isToken reports whether text is an HTTP token: a method or a field name.
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		if c >= 0x7f || c <= ' ' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return text != ""
}

// printable reports whether text has no control characters except tabs.
func printable(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

var emptyLine = []byte("\r\n\r\n")

// headEnd returns the size of the request's header in b, 0 if it is incomplete,
// or errHead if it can't become valid.
func headEnd(b []byte) (int, error) {
	if len(b) > 0 && (b[0] < 'A' || b[0] > 'z') {
		return 0, errHead
	}
	end := bytes.Index(b, emptyLine)
	if end >= 0 {
		return end + len(emptyLine), nil
	}
	// With other line ends the client and the proxy would both wait.
	if bytes.Count(b, []byte("\n")) != bytes.Count(b, []byte("\r\n")) {
		return 0, errHead
	}
	return 0, nil
}
