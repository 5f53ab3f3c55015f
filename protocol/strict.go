package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// maxStrictDepth bounds how deeply [UnmarshalStrict] lets values nest.
const maxStrictDepth = 64

// UnmarshalStrict decodes data, which must be exactly one JSON object in valid
// UTF-8, without members that v doesn't know and without a member named twice
// at any depth. Messages of the tunnel are decoded leniently, see
// [UnmarshalObject]; this is for what people and programs of one version write.
func UnmarshalStrict(data []byte, v any) error {
	if err := UnmarshalObject(data, &map[string]json.RawMessage{}); err != nil {
		return err
	}
	if err := checkMembers(json.NewDecoder(bytes.NewReader(data)), 0); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON object")
	}
	return nil
}

// maxPlainMembers is up to how many members [checkDistinct] looks at by itself.
const maxPlainMembers = 16

// checkDistinct reports a member of data, one valid JSON object, that is named
// twice, at its top also in other letters: a decoder would take both for the
// same. It is quick for small, flat objects, as browsers send them by the
// thousand.
func checkDistinct(data []byte) error {
	var names [maxPlainMembers][]byte
	n, depth := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth > 1 {
				return checkAllDistinct(data)
			}
		case '"':
			text := data[i+1:]
			end := bytes.IndexByte(text, '"')
			if end < 0 || n == len(names) || bytes.IndexByte(text[:end], '\\') >= 0 {
				return checkAllDistinct(data)
			}
			i += 1 + end
			if rest := bytes.TrimLeft(text[end+1:], " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
				continue // a value
			}
			for _, name := range names[:n] {
				if bytes.EqualFold(name, text[:end]) {
					return fmt.Errorf("member %q appears twice", text[:end])
				}
			}
			names[n] = text[:end]
			n++
		}
	}
	return nil
}

// checkAllDistinct is checkDistinct for any object.
func checkAllDistinct(data []byte) error {
	if err := checkMembers(json.NewDecoder(bytes.NewReader(data)), 0); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	folded := make(map[string]bool, len(members))
	for name := range members {
		key := foldName(name)
		if folded[key] {
			return fmt.Errorf("member %q appears twice", name)
		}
		folded[key] = true
	}
	return nil
}

// foldName returns one name for all that a decoder takes for the same.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// checkMembers reads one value from dec and reports a member named twice.
func checkMembers(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxStrictDepth {
		return fmt.Errorf("nested deeper than %d", maxStrictDepth)
	}
	seen := make(map[string]bool)
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				return err
			}
			key := name.(string) // the decoder lets nothing else through here
			if seen[key] {
				return fmt.Errorf("member %q appears twice", key)
			}
			seen[key] = true
		}
		if err := checkMembers(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing delimiter
	return err
}
