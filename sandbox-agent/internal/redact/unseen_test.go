package redact

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestUnseen compares every character with what Unicode says of it, and with the
// shortcut for common ones.
func TestUnseen(t *testing.T) {
	for r := rune(0xa0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		want := unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Zl, unicode.Zp,
			unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
		if unseen(r) != want && (r < 0xe0000 || r > 0xe0fff) {
			t.Errorf("unseen(%U) = %v", r, unseen(r))
		}
		var p [utf8.UTFMax]byte
		n := utf8.EncodeRune(p[:], r)
		switch got := common(p[:n]); {
		case got == 0:
		case got != n || want:
			t.Errorf("common(%U) = %d", r, got)
		}
		if got := common(p[:n-1]); n > 1 && got != 0 && got != n-1 {
			t.Errorf("common of %U, cut, = %d", r, got)
		}
	}
}
