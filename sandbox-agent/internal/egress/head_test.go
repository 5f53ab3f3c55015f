package egress

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestParseHead(t *testing.T) {
	h, err := parseHead([]byte("GET http://a.com/x HTTP/1.1\r\nHOST:\ta.com \r\nProxy-Authorization: Basic eA==\r\nX-Empty:\r\nContent-Length: 3\r\n\r\n"))
	if err != nil || h.method != "GET" || h.target != "http://a.com/x" || h.host != "a.com" || !h.hasHost || h.authorization != "Basic eA==" {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err := parseHead([]byte("GET http://a.com/ HTTP/1.0\r\n\r\n")); err != nil || h.hasHost {
		t.Errorf("%+v, %v", h, err)
	}
	for what, text := range map[string]string{
		"length and encoding":     "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"two lengths":             "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"list of lengths":         "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1, 1\r\n\r\n",
		"signed length":           "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nContent-Length: +1\r\n\r\n",
		"empty length":            "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nContent-Length:\r\n\r\n",
		"another encoding":        "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"two encodings":           "POST http://a.com/ HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"encoding in 1.0":         "POST http://a.com/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"no host":                 "GET http://a.com/ HTTP/1.1\r\n\r\n",
		"two hosts":               "GET http://a.com/ HTTP/1.1\r\nHost: a.com\r\nHost: a.com\r\n\r\n",
		"folded line":             "GET http://a.com/ HTTP/1.1\r\nHost: a.com\r\n b.com\r\n\r\n",
		"space before the colon":  "GET http://a.com/ HTTP/1.1\r\nHost : a.com\r\n\r\n",
		"line without a colon":    "GET http://a.com/ HTTP/1.1\r\nHost: a.com\r\nx\r\n\r\n",
		"bare line feed":          "GET http://a.com/ HTTP/1.1\r\nHost: a.com\nX: y\r\n\r\n",
		"bare carriage return":    "GET http://a.com/ HTTP/1.1\r\nHost: a.com\rX: y\r\n\r\n",
		"NUL":                     "GET http://a.com/ HTTP/1.1\r\nHost: a.com\x00\r\n\r\n",
		"two spaces":              "GET  http://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
		"tab in the first line":   "GET\thttp://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
		"HTTP/2":                  "GET http://a.com/ HTTP/2.0\r\nHost: a.com\r\n\r\n",
		"HTTP/0.9":                "GET http://a.com/\r\n\r\n",
		"method that is no token": "G(T http://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
		"two authorizations":      "GET http://a.com/ HTTP/1.1\r\nHost: a.com\r\nProxy-Authorization: a\r\nProxy-Authorization: b\r\n\r\n",
	} {
		if h, err := parseHead([]byte(text)); !errors.Is(err, errHead) {
			t.Errorf("%s: %+v, %v", what, h, err)
		}
	}
}

func TestHeadEnd(t *testing.T) {
	for text, want := range map[string]int{"": 0, "GET": 0, "GET x\r\n": 0, "GET x\r\n\r\nmore": 9} {
		if n, err := headEnd([]byte(text)); n != want || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"\x16\x03\x01", "\x00", "GET x\n", "GET x\r\na\n", " GET"} {
		if n, err := headEnd([]byte(text)); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
}

// FuzzHead: what is accepted net/http reads likewise.
func FuzzHead(f *testing.F) {
	f.Add([]byte("GET http://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n"))
	f.Add([]byte("POST http://a.com/ HTTP/1.1\r\nHost: b.com\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Add([]byte("CONNECT a.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := headEnd(text)
		if n == 0 || err != nil {
			return
		}
		h, err := parseHead(text[:n])
		if err != nil {
			return
		}
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		if request.Method != h.method || request.RequestURI != h.target {
			t.Fatalf("%q: %q %q", text, h.method, h.target)
		}
		if strings.HasPrefix(h.target, "/") && request.Host != h.host {
			t.Fatalf("%q: host %q, and %q", text, h.host, request.Host)
		}
	})
}
