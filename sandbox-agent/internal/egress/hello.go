package egress

import (
	"encoding/binary"
	"errors"
)

// maxHelloBytes bounds a ClientHello with the records around it.
const maxHelloBytes = 16 << 10

// Results for bytes that aren't a complete ClientHello.
var (
	errShort  = errors.New("the ClientHello goes on")
	errNotTLS = errors.New("not TLS")
	errHello  = errors.New("not a ClientHello that can be read")
)

// The parts of TLS that are read here (RFC 8446, 4.1.2 and 5.1; RFC 6066, 3).
const (
	recordHeaderBytes   = 5
	recordHandshake     = 22
	recordMajorVersion  = 3
	maxRecordBytes      = 1 << 14
	messageHeaderBytes  = 4
	messageClientHello  = 1
	extensionServerName = 0
	nameTypeHost        = 0
	helloFixedBytes     = 2 + 32 // version and random
	maxSessionIDBytes   = 32
)

// serverName returns the server name in a connection that begins with b, "" if
// there is none. It fails with errShort while bytes are missing, errNotTLS if
// it doesn't begin with a ClientHello, and errHello if servers could parse the
// ClientHello differently.
func serverName(b []byte) (string, error) {
	message, err := helloMessage(b)
	if err != nil {
		return "", err
	}
	extensions, err := helloExtensions(message)
	if err != nil {
		return "", err
	}
	name, seen := "", false
	for len(extensions) > 0 {
		kind, rest, ok := take(extensions, 2)
		data, rest, ok2 := prefixed(rest, 2)
		if !ok || !ok2 {
			return "", errHello
		}
		extensions = rest
		if binary.BigEndian.Uint16(kind) != extensionServerName {
			continue
		}
		if seen {
			return "", errHello
		}
		seen = true
		if name, err = nameInExtension(data); err != nil {
			return "", err
		}
	}
	return name, nil
}

// helloMessage returns the body of the ClientHello, joined from its records.
func helloMessage(b []byte) ([]byte, error) {
	var fragments [][]byte
	have, need := 0, messageHeaderBytes
	for rest := b; have < need; {
		fragment, after, err := record(rest, len(fragments) == 0)
		if err != nil {
			return nil, err
		}
		fragments = append(fragments, fragment)
		have += len(fragment)
		if need == messageHeaderBytes && have >= need {
			length, err := messageLength(fragments)
			if err != nil {
				return nil, err
			}
			need += length
		}
		rest = after
	}
	message := make([]byte, 0, have)
	for _, fragment := range fragments {
		message = append(message, fragment...)
	}
	return message[messageHeaderBytes:need], nil
}

// record returns the content of the first record in b, once it is complete.
func record(b []byte, first bool) (fragment, after []byte, err error) {
	wrong := errHello
	if first {
		wrong = errNotTLS
	}
	switch {
	case len(b) > 0 && b[0] != recordHandshake, len(b) > 1 && b[1] != recordMajorVersion, len(b) > 2 && b[2] > 4:
		return nil, nil, wrong
	case len(b) < recordHeaderBytes:
		return nil, nil, errShort
	}
	length := int(binary.BigEndian.Uint16(b[3:]))
	switch {
	case length == 0 || length > maxRecordBytes: // of which servers think differently
		return nil, nil, errHello
	case first && len(b) > recordHeaderBytes && b[recordHeaderBytes] != messageClientHello:
		return nil, nil, wrong
	case len(b) < recordHeaderBytes+length:
		return nil, nil, errShort
	}
	return b[recordHeaderBytes : recordHeaderBytes+length], b[recordHeaderBytes+length:], nil
}

// messageLength reads the header of the message in fragments, which hold it.
func messageLength(fragments [][]byte) (int, error) {
	var header []byte
	for _, fragment := range fragments {
		header = append(header, fragment[:min(len(fragment), messageHeaderBytes-len(header))]...)
	}
	length := int(header[1])<<16 | int(header[2])<<8 | int(header[3])
	if header[0] != messageClientHello || length > maxHelloBytes {
		return 0, errHello
	}
	return length, nil
}

// helloExtensions returns the extensions of a ClientHello, without their
// length.
func helloExtensions(message []byte) ([]byte, error) {
	_, rest, ok := take(message, helloFixedBytes)
	session, rest, ok1 := prefixed(rest, 1)
	suites, rest, ok2 := prefixed(rest, 2)
	methods, rest, ok3 := prefixed(rest, 1)
	if !ok || !ok1 || !ok2 || !ok3 || len(session) > maxSessionIDBytes || len(suites) < 2 || len(suites)%2 != 0 || len(methods) == 0 {
		return nil, errHello
	}
	if len(rest) == 0 {
		return nil, nil // before TLS 1.2 they may be missing
	}
	extensions, rest, ok := prefixed(rest, 2)
	if !ok || len(rest) > 0 {
		return nil, errHello
	}
	return extensions, nil
}

// nameInExtension returns the one host name of a server_name extension. It
// refuses several, as servers may choose any.
func nameInExtension(data []byte) (string, error) {
	list, rest, ok := prefixed(data, 2)
	if !ok || len(rest) > 0 {
		return "", errHello
	}
	kind, rest, ok := take(list, 1)
	name, rest, ok2 := prefixed(rest, 2)
	if !ok || !ok2 || len(rest) > 0 || kind[0] != nameTypeHost || len(name) == 0 {
		return "", errHello
	}
	return string(name), nil
}

// take splits b after n bytes.
func take(b []byte, n int) (head, rest []byte, ok bool) {
	if len(b) < n {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// prefixed splits b after a vector whose length is in the first size bytes.
func prefixed(b []byte, size int) (vector, rest []byte, ok bool) {
	header, rest, ok := take(b, size)
	if !ok {
		return nil, nil, false
	}
	n := 0
	for _, c := range header {
		n = n<<8 | int(c)
	}
	return take(rest, n)
}
