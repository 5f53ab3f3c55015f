package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
)

// iconSizes are those that Chrome asks for; a manifest can't name an SVG.
var iconSizes = []int{16, 32, 48, 128}

// ink is the mark's colour, which light and dark toolbars both show.
var ink = color.NRGBA{0x2a, 0xa6, 0x94, 0xff}

const (
	grid    = 24.0 // the mark is drawn on a square of this side, as the console's icon
	stroke  = 2.6
	samples = 4 // of a pixel, in each direction
)

// icon draws the mark, an arrow that leaves a ring, as a PNG.
func icon(side int) ([]byte, error) {
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			covered := 0
			for i := range samples * samples {
				px := (float64(x) + (float64(i%samples)+0.5)/samples) * grid / float64(side)
				py := (float64(y) + (float64(i/samples)+0.5)/samples) * grid / float64(side)
				if marked(px, py) {
					covered++
				}
			}
			c := ink
			c.A = uint8(covered * 255 / (samples * samples))
			m.SetNRGBA(x, y, c)
		}
	}
	var out bytes.Buffer
	err := png.Encode(&out, m)
	return out.Bytes(), err
}

// marked reports whether the mark covers a point of the grid.
func marked(x, y float64) bool {
	const radius, openAt = 8.0, 18.0 // the ring is open where its right ends would meet
	centre := openAt - math.Sqrt(radius*radius-25)
	ring := math.Abs(math.Hypot(x-centre, y-12) - radius)
	if math.Abs(math.Atan2(y-12, x-centre)) < math.Atan2(5, openAt-centre) {
		ring = min(math.Hypot(x-openAt, y-7), math.Hypot(x-openAt, y-17))
	}
	return min(ring, along(x, y, 8.5, 8.5, 12, 12), along(x, y, 12, 12, 8.5, 15.5), along(x, y, 15, 12, 22.5, 12)) <= stroke/2
}

// along is the distance from a point to the line from a to b.
func along(x, y, ax, ay, bx, by float64) float64 {
	dx, dy := bx-ax, by-ay
	t := min(max(((x-ax)*dx+(y-ay)*dy)/(dx*dx+dy*dy), 0), 1)
	return math.Hypot(x-ax-t*dx, y-ay-t*dy)
}
