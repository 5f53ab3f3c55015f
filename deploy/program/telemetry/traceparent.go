package telemetry

import (
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A traceparent of version 00, and where its parts are:
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//	version, trace id from 3, span id from 36, flags from 53
const (
	traceAt   = 3
	spanAt    = traceAt + 32 + 1
	flagsAt   = spanAt + 16 + 1
	parentLen = flagsAt + 2

	version = "00"
	// knownFlags are sampled and random, the flags of version 00.
	knownFlags = 0x03
)

// parse checks a traceparent and returns it as version 00, without flags
// unknown to that version. Of a later version it reads only the parts of
// version 00, which later versions must keep.
func parse(text string) (traceparent string, valid bool) {
	if len(text) < parentLen || len(text) > protocol.MaxTraceparentBytes {
		return "", false
	}
	parts := []string{text[:traceAt-1], text[traceAt : spanAt-1], text[spanAt : flagsAt-1], text[flagsAt:parentLen]}
	for _, part := range parts {
		if !isHex(part) {
			return "", false
		}
	}
	rest := text[parentLen:]
	switch {
	case text[traceAt-1] != '-' || text[spanAt-1] != '-' || text[flagsAt-1] != '-':
		return "", false
	case parts[0] == "ff" || rest != "" && (parts[0] == version || rest[0] != '-'):
		return "", false
	case strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "":
		return "", false
	}
	flags, err := strconv.ParseUint(parts[3], 16, 8)
	if err != nil {
		return "", false
	}
	return join(parts[1], parts[2], byte(flags)), true
}

// join returns the traceparent of a span.
func join(trace, span string, flags byte) string {
	return version + "-" + trace + "-" + span + "-0" + strconv.FormatUint(uint64(flags&knownFlags), 16)
}

// isHex reports whether text is lower-case hexadecimal digits.
func isHex(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
