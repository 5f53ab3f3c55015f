package web

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// ReadAll returns the body as it was sent.
func ReadAll(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	if err == nil {
		return data, nil
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, protocol.Errorf(protocol.KindTooLarge, "body larger than %d bytes", tooLarge.Limit)
	}
	return nil, protocol.Errorf(protocol.KindInvalid, "body could not be read")
}

// ReadBody decodes the body, which must be one strict JSON object, into v.
func ReadBody(r *http.Request, v any) error {
	data, err := ReadAll(r)
	if err != nil {
		return err
	}
	if err := protocol.UnmarshalStrict(data, v); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	return nil
}

// ReadOptionalBody is [ReadBody] for a body that may be left out.
func ReadOptionalBody(r *http.Request, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return ReadBody(r, v)
}

// Limit returns ?limit=, from 1 to most, or absent where there is none.
func Limit(r *http.Request, absent, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return absent, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > most {
		return 0, protocol.Errorf(protocol.KindInvalid, "limit: want 1 to %d", most)
	}
	return limit, nil
}

// Bearer returns the bearer token of r, empty if it has none.
func Bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// Time returns a time as it is written in answers, nil for the zero time.
func Time(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// EmptyOrID reports whether id is absent or has an id's form.
func EmptyOrID[T ~string](id T) bool { return id == "" || protocol.ValidID(id) }

// maxLocalPath bounds a path that a browser is to be sent back to, in bytes.
const maxLocalPath = 1024

// LocalPath reports whether text is a path on this origin and nothing else: a
// browser takes "//host" and "/\host" for another one, and strips what it
// doesn't print.
func LocalPath(text string) bool {
	if len(text) > maxLocalPath || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '\\' || c == '#' {
			return false
		}
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "" && u.Host == "" && !strings.HasPrefix(u.Path, "//")
}

// Origin returns text as scheme://host[:port]. What goes to a relay is signed,
// not secret, but plain HTTP would let anyone on the way hold it back: it is
// for loopback only. field names text in the error, which is KindInvalid.
func Origin(field, text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || strings.TrimSuffix(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return "", protocol.Errorf(protocol.KindInvalid, "%s: want scheme://host:port", field)
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback) {
		return "", protocol.Errorf(protocol.KindInvalid, "%s: want https, or http on loopback", field)
	}
	return u.Scheme + "://" + u.Host, nil
}

// Secret returns 256 random bits, as text that a URL or a cookie may hold.
func Secret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
