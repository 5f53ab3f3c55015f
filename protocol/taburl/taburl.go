// Package taburl hides what is secret in the addresses of a browser's tabs.
package taburl

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden stands for what was secret.
const Hidden = "[REDACTED]"

// A parameter holds a secret if its name has one of Within in it, or is one of
// Whole, in letters of either case. The browser extension has the same lists.
var (
	Within = []string{"password", "passwd", "pwd", "token", "secret", "key", "auth", "bearer", "signature", "credential", "jwt"}
	Whole  = []string{"code", "sig", "sid", "otp"}
)

// special are the schemes whose host browsers find behind any number of slashes.
var special = []string{"http", "https", "ws", "wss", "ftp"}

// Mask returns an address as others may read it: without what isn't printed, its
// user and password, and the values of parameters that hold secrets, in its query
// and behind its #. It reads addresses as browsers do, good ones and bad ones. What
// it has returned stays the same when it is masked again.
func Mask(address string) string {
	head, fragment, hasFragment := strings.Cut(Printed(address), "#")
	path, query, hasQuery := strings.Cut(head, "?")
	masked := withoutUser(strings.TrimSpace(path))
	if hasQuery {
		masked += "?" + maskParameters(query)
	}
	if hasFragment {
		masked += "#" + maskParameters(fragment)
	}
	return masked
}

// Printed removes what isn't printed, and what isn't UTF-8.
func Printed(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

// withoutUser removes the user and the password that stand before a host.
func withoutUser(address string) string {
	start, slashes := hostAt(address)
	if slashes == "" {
		return address
	}
	masked, rest := []byte(address[:start]), address[start:]
	for {
		if slashes != "/" { // also once what stood between slashes is gone
			host := strings.TrimLeft(rest, slashes)
			masked, rest = append(masked, rest[:len(rest)-len(host)]...), host
		}
		host := strings.LastIndexByte(rest[:ends(rest, slashes)], '@') + 1
		if rest = rest[host:]; host == 0 || slashes == "/" {
			return string(append(masked, rest...))
		}
	}
}

// hostAt returns where a host, with what is before it, begins in an address, and
// what ends it: nothing for an address without a host.
func hostAt(address string) (start int, slashes string) {
	for {
		scheme := schemeOf(address[start:])
		rest := address[start+len(scheme):]
		switch {
		case slices.Contains(special, strings.ToLower(scheme)):
			return start + len(scheme) + 1, `/\`
		case strings.HasPrefix(rest, "://"):
			return start + len(scheme) + 3, "/"
		case scheme == "" && strings.HasPrefix(rest, "//"):
			return start + 2, "/"
		case scheme == "":
			return 0, ""
		}
		start += len(scheme) + 1 // of another address, as in blob: and view-source:
	}
}

// schemeOf returns what an address begins with, up to its first colon, if that can
// be a scheme.
func schemeOf(address string) string {
	scheme, _, ok := strings.Cut(address, ":")
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+-.", r))
	}
	if !ok || strings.ContainsFunc(scheme, other) {
		return ""
	}
	return scheme
}

// maskParameters masks the values of parameters, wherever a program may find them.
// A secret goes on up to the next &: programs differ in what else ends it.
func maskParameters(query string) string {
	var masked strings.Builder
	for query != "" {
		end := ends(query, "&;?#")
		name, value, ok := strings.Cut(query[:end], "=")
		if ok && secret(name) {
			if end = ends(query, "&"); end > len(name)+1 {
				value = Hidden
			}
		}
		if masked.WriteString(name); ok {
			masked.WriteString("=" + value)
		}
		if end == len(query) {
			break
		}
		masked.WriteByte(query[end])
		query = query[end+1:]
	}
	return masked.String()
}

// ends returns where the first of some bytes stands in s, or s ends.
func ends(s, any string) int {
	if i := strings.IndexAny(s, any); i >= 0 {
		return i
	}
	return len(s)
}

// secret reports whether a parameter's value is hidden.
func secret(name string) bool {
	name = strings.ToLower(strings.TrimSpace(unescaped(name)))
	return slices.Contains(Whole, name) || slices.ContainsFunc(Within, func(word string) bool { return strings.Contains(name, word) })
}

// unescaped decodes a name as browsers do, which leave what is no escape as it is.
func unescaped(name string) string {
	var plain strings.Builder
	for i := 0; i < len(name); i++ {
		if c, ok := escape(name[i:]); ok {
			plain.WriteByte(c)
			i += 2
		} else if name[i] == '+' {
			plain.WriteByte(' ')
		} else {
			plain.WriteByte(name[i])
		}
	}
	return plain.String()
}

// escape returns the byte whose escape s begins with.
func escape(s string) (c byte, ok bool) {
	const digits = "0123456789abcdef"
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	high := strings.IndexByte(digits, s[1]|0x20)
	low := strings.IndexByte(digits, s[2]|0x20)
	return byte(high<<4 | low), high >= 0 && low >= 0
}
