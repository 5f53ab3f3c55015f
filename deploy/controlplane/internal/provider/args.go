package provider

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// checkID takes what the providers use as ids within a path.
func checkID(name, id string) error {
	if id == "" {
		return invalid("%s is missing", name)
	}
	if len(id) > 256 {
		return invalid("%s is longer than 256 bytes", name)
	}
	for i := range len(id) {
		if c := id[i]; !isAlnum(c) && c != '-' && c != '_' {
			return invalid("%s is not an id", name)
		}
	}
	return nil
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// lower returns text with its ASCII letters in lower case. Others stay: the
// Kelvin sign is a letter of its own in an address, though Unicode has k for it.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}

// checkText takes text of up to limit bytes.
func checkText(name, text string, limit int) error {
	if len(text) > limit {
		return invalid("%s is longer than %d bytes", name, limit)
	}
	return nil
}

// checkLine takes one line of text that isn't empty.
func checkLine(name, text string, limit int) error {
	if text == "" {
		return invalid("%s is missing", name)
	}
	if strings.ContainsAny(text, "\r\n\x00") {
		return invalid("%s is more than one line", name)
	}
	return checkText(name, text, limit)
}

// checkCount takes a count from 1 to limit, or 0 for the default.
func checkCount(name string, n, limit int) error {
	if n < 0 || n > limit {
		return invalid("%s must be within 1 and %d", name, limit)
	}
	return nil
}

// checkOneOf takes one of some words, or none.
func checkOneOf(name, word string, allowed ...string) error {
	if word == "" {
		return nil
	}
	for _, a := range allowed {
		if word == a {
			return nil
		}
	}
	return invalid("%s must be one of %s", name, strings.Join(allowed, ", "))
}

// The encodings of content.
const (
	encodingText   = "utf-8"
	encodingBase64 = "base64" // standard, with padding
)

// decodeContent returns the bytes of content in an encoding.
func decodeContent(content, encoding string) ([]byte, error) {
	data := []byte(content)
	if encoding == encodingBase64 {
		var err error
		if data, err = base64.StdEncoding.DecodeString(content); err != nil {
			return nil, invalid("content is not base64")
		}
	}
	if len(data) > maxContent {
		return nil, invalid("content is larger than %d bytes", maxContent)
	}
	return data, nil
}

// encodeContent returns bytes as text where they are text.
func encodeContent(data []byte) (content, encoding string) {
	if utf8.Valid(data) {
		return string(data), encodingText
	}
	return base64.StdEncoding.EncodeToString(data), encodingBase64
}

// firstError returns the first that is one.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// or returns v, or fallback if that is nothing.
func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
