package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth bounds how deep the JSON of a line may be nested. Parts of a line
// become parts of events, which browsers parse.
const maxDepth = 256

// parse decodes a line that is one JSON object into v. It reports false for
// everything else: other values, cut lines, and what is nested too deep. A member
// of another type than v's is left out. Bytes that are no UTF-8 become U+FFFD.
func parse(line []byte, v any) bool {
	line = bytes.ToValidUTF8(bytes.TrimSpace(line), []byte("\uFFFD"))
	if len(line) == 0 || line[0] != '{' || !shallow(line) {
		return false
	}
	err := json.Unmarshal(line, v)
	_, mismatch := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || mismatch
}

// shallow reports whether the JSON text p is nested at most maxDepth deep.
func shallow(p []byte) bool {
	if len(p) <= 2*maxDepth { // each level takes two bytes
		return true
	}
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
		case '}', ']':
			depth--
		case '"':
			i += stringEnd(p[i+1:])
		}
	}
	return true
}

// stringEnd returns how many bytes of p belong to a string that has begun before
// it, its closing quote included.
func stringEnd(p []byte) int {
	at := 0
	for {
		n := bytes.IndexByte(p[at:], '"')
		if n < 0 {
			return len(p)
		}
		at += n + 1
		slashes := 0
		for j := at - 2; j >= 0 && p[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
	}
}

// maxReason bounds what is quoted of a program's output as the reason for its
// end, in bytes.
const maxReason = 500

// reason returns the end of what a program has printed as one readable text:
// without escape sequences and control characters, at most maxReason bytes.
func reason(output []byte) string {
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && r != utf8.RuneError {
			return r
		}
		return -1
	}, string(withoutEscapes(output)))
	text = strings.TrimSpace(text)
	if len(text) <= maxReason {
		return text
	}
	text = text[len(text)-maxReason:]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// withoutEscapes removes ANSI's control sequences.
func withoutEscapes(p []byte) []byte {
	if bytes.IndexByte(p, 0x1b) < 0 {
		return p
	}
	out := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		if p[i] != 0x1b || i+1 == len(p) || p[i+1] != '[' {
			out = append(out, p[i])
			continue
		}
		for i += 2; i < len(p) && (p[i] < 0x40 || p[i] > 0x7e); i++ { // parameters
		}
	}
	return out
}

// null reports whether a value is absent or null.
func null(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// orNil returns raw, or nil where it is null.
func orNil(raw json.RawMessage) json.RawMessage {
	if null(raw) {
		return nil
	}
	return raw
}

// orObject returns raw, or an object without members where it is null.
func orObject(raw json.RawMessage) json.RawMessage {
	if null(raw) {
		return json.RawMessage("{}")
	}
	return raw
}

// object returns the JSON of v, which can always be encoded.
func object(v any) json.RawMessage { return bytes.TrimSpace(encode(v)) }

// encode returns the JSON of v, which can always be encoded, as a line.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil
	}
	return b.Bytes()
}
