package history

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzUpload: whatever an upload says of an image and whatever is in it, its type
// is one that may be shown, and its name leads nowhere.
func FuzzUpload(f *testing.F) {
	f.Add("image/png", "a.png", []byte("\x89PNG\r\n\x1a\n"))
	f.Add("image/svg+xml; charset=utf-8", "../b\u202e.svg", []byte("\xef\xbb\xbf <svg>"))
	f.Add("", `c:\d`, []byte("RIFF....WEBP"))
	f.Add("image/webp", "..", []byte("RIFF"))
	f.Fuzz(func(t *testing.T, said, name string, content []byte) {
		switch mimeType, ok := imageType(said, content); mimeType {
		case "image/jpeg", "image/png", "image/gif", "image/webp", "image/svg+xml":
		default:
			if ok {
				t.Errorf("%q is %q", said, mimeType)
			}
		}
		shown := label(name)
		if shown == "" || len(shown) > maxLabel || !utf8.ValidString(shown) || strings.ContainsAny(shown, `/\`) || strings.Trim(shown, ".") == "" ||
			strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", name, shown)
		}
	})
}
