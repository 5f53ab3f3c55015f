package grid

//go:generate sh -c "node gen/widths.mjs > widths.go"

// Grapheme break classes, as in widths.go.
const (
	classOther = iota
	ClassPrepend
	classExtend
	classRegional // a regional indicator
	classSpacing
	classHangulL
	classHangulV
	classHangulT
	classHangulLV
	classHangulLVT
	classZWJ
	classPictographic

	classMask = 15
	wideBit   = 16
)

// properties returns the class of a code point, and wideBit when it takes two
// cells.
func properties(r rune) uint8 {
	middle := &widthMiddles[widthRoots[r>>14]]
	leaf := int(middle[r>>7&127])
	return widthLeaves[leaf<<7|int(r&127)] - '@'
}

// A Joint is what the last printed character means to the next: whether they
// share a cell, and what REP repeats. The zero joint is that of no character.
type Joint uint8

const jointSet Joint = 0x80 // a character was printed, and nothing since

// plainJoint is the joint of a narrow character with no class of its own.
const plainJoint = jointSet | 1<<4

func newJoint(class uint8, width int) Joint {
	return jointSet | Joint(width)<<4 | Joint(class)
}

// Class returns the class of the last character, one of the class constants.
func (j Joint) Class() uint8 { return uint8(j) & classMask }

// Width returns the columns that the characters so far take.
func (j Joint) Width() int { return int(j>>4) & 3 }

// Follow returns the joint of r after j, and whether r joins j's cell. The
// width of a joint that joined is that of the whole cell.
func (j Joint) Follow(r rune) (next Joint, joins bool) {
	p := properties(r)
	class, width := p&classMask, 1
	if p&wideBit != 0 {
		width = 2
	}
	if j == 0 || !joinClasses(j.Class(), class) {
		return newJoint(class, width), false
	}
	if j.Width() > width {
		width = j.Width()
	}
	if class == classRegional {
		return newJoint(classOther, 2), true // a pair is a flag; the next begins another
	}
	return newJoint(class, width), true
}

// joinClasses reports whether there is no break between two classes. Like the
// addon it takes no notice of what came before the first.
func joinClasses(before, after uint8) bool {
	switch after {
	case classExtend, classZWJ, classSpacing:
		return true
	case classPictographic:
		return before == classZWJ || before == ClassPrepend
	case classRegional:
		return before == classRegional || before == ClassPrepend
	case classHangulL, classHangulLV, classHangulLVT:
		return before == classHangulL || before == ClassPrepend
	case classHangulV:
		return before == classHangulL || before == classHangulV || before == classHangulLV || before == ClassPrepend
	case classHangulT:
		return before >= classHangulV && before <= classHangulLVT || before == ClassPrepend
	}
	return before == ClassPrepend
}
