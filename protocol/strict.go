package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
