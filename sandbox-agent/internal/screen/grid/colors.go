package grid

import (
	"math"
	"strconv"
	"strings"
)

// A Color is one that a program has set; the zero color is none.
type Color struct {
	Set     bool
	r, g, b uint8
}

// Colors are those that a program has set by OSC, in place of the theme's.
type Colors struct {
	Palette [256]Color
	Special [3]Color // foreground, background, cursor
}

// theme is what viewers show where a program has set nothing: the dark theme
// of the console. The rest of the 256 colours is the same everywhere.
var (
	themePalette = [16]uint32{
		0x20272f, 0xf2777a, 0x8fc77f, 0xe2bd68, 0x76a9f0, 0xc792e0, 0x62d0be, 0xc9d1da,
		0x77838f, 0xff9a98, 0xaee09f, 0xf5d68c, 0x9cc4ff, 0xdeb3f2, 0x8ee6d7, 0xf3f6f9,
	}
	themeSpecial = [3]uint32{0xd6dde6, 0x0c1014, 0x62d0be}
)

func rgb(v uint32) Color { return Color{true, uint8(v >> 16), uint8(v >> 8), uint8(v)} }

// themed returns the theme's colour in place of one that isn't set.
func (c *Colors) themed(target *Color) Color {
	for i := range c.Special {
		if target == &c.Special[i] {
			return rgb(themeSpecial[i])
		}
	}
	for i := range c.Palette {
		if target != &c.Palette[i] {
			continue
		}
		if i < len(themePalette) {
			return rgb(themePalette[i])
		}
		if i >= 232 {
			v := uint8(8 + 10*(i-232))
			return Color{true, v, v, v}
		}
		cube := [6]uint8{0, 0x5f, 0x87, 0xaf, 0xd7, 0xff}
		i -= 16
		return Color{true, cube[i/36], cube[i/6%6], cube[i%6]}
	}
	return Color{}
}

// PaletteIndex returns the colour of the palette that key names in decimal.
func PaletteIndex(key string) (i int, ok bool) {
	n, err := strconv.ParseUint(key, 10, 31)
	return int(n), err == nil && n < 256
}

// Reset obeys OSC 104.
func (c *Colors) Reset(data string) {
	if data == "" {
		c.Palette = [256]Color{}
		return
	}
	for _, key := range strings.Split(data, ";") {
		if i, ok := PaletteIndex(key); ok {
			c.Palette[i] = Color{}
		}
	}
}

// Format returns a colour as terminals report it.
func (c *Colors) Format(target *Color) []byte {
	if target.Set {
		return target.Format()
	}
	themed := c.themed(target)
	return themed.Format()
}

// Format returns c as an OSC says it: rgb:rrrr/gggg/bbbb, in hexadecimal.
func (c *Color) Format() []byte {
	out := []byte("rgb:")
	for i, v := range []uint8{c.r, c.g, c.b} {
		if i > 0 {
			out = append(out, '/')
		}
		const hex = "0123456789abcdef"
		out = append(out, hex[v>>4], hex[v&15], hex[v>>4], hex[v&15])
	}
	return out
}

// ParseColor reads rgb:R/G/B or #RGB, with up to four hexadecimal digits each.
func ParseColor(spec string) (c Color, ok bool) {
	spec = strings.ToLower(spec)
	var parts []string
	digits := 0
	scaled := true // to the width, as opposed to cut
	if value, found := strings.CutPrefix(spec, "rgb:"); found {
		if parts = strings.Split(value, "/"); len(parts) != 3 {
			return Color{}, false
		}
		digits = len(parts[0])
	} else if value, found := strings.CutPrefix(spec, "#"); found && len(value)%3 == 0 {
		scaled, digits = false, len(value)/3
		parts = []string{value[:digits], value[digits : 2*digits], value[2*digits:]}
	}
	if digits < 1 || digits > 4 {
		return Color{}, false
	}
	var values [3]uint8
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 16, 16)
		if err != nil || len(part) != digits {
			return Color{}, false
		}
		switch {
		case scaled:
			values[i] = uint8(math.Floor(float64(v)/float64(uint(1)<<(4*digits)-1)*255 + 0.5))
		case digits == 1:
			values[i] = uint8(v << 4)
		default:
			values[i] = uint8(v >> (4 * (digits - 2)))
		}
	}
	return Color{true, values[0], values[1], values[2]}, true
}
