package grid

// Modes are what SM, RM, DECSET, DECRST and their like choose.
type Modes struct {
	Insert, NewLine   bool
	CursorKeys        bool
	Keypad            bool
	Origin            bool
	Wraparound        bool
	ReverseWraparound bool
	Focus             bool
	BracketedPaste    bool
	Synchronized      bool
	Hidden            bool // the cursor
	Mouse             int  // DECSET number of the events reported, 0 for none
	MouseEncoding     int  // likewise
	shape             int  // of the cursor: block, underline, bar; 0 for the viewer's own
	shapeBlink        Toggle
	Blink             Toggle // by DECSET 12
}

// A Toggle is on, off, or up to the viewer.
type Toggle uint8

const (
	Unset Toggle = iota
	On
	off
)

func toggled(yes bool) Toggle {
	if yes {
		return On
	}
	return off
}

// InitialModes are those of a new terminal.
var InitialModes = Modes{Wraparound: true}

// Private returns the flag of a mode that is nothing but a flag.
func (m *Modes) Private(mode int) *bool {
	switch mode {
	case 1:
		return &m.CursorKeys
	case 7:
		return &m.Wraparound
	case 45:
		return &m.ReverseWraparound
	case 66:
		return &m.Keypad
	case 1004:
		return &m.Focus
	case 2004:
		return &m.BracketedPaste
	case 2026:
		return &m.Synchronized
	}
	return nil
}

// tangle reports whether, as modes are, printing moves or overwrites text.
func (m *Modes) tangle() bool { return m.Insert || !m.Wraparound }

// SetCursorStyle obeys DECSCUSR. Of an unknown style xterm.js takes whether it
// blinks.
func (m *Modes) SetCursorStyle(style int) {
	if style == 0 {
		m.shape, m.shapeBlink = 0, Unset
		return
	}
	if style <= 6 {
		m.shape = (style + 1) / 2
	}
	m.shapeBlink = toggled(style%2 == 1)
}

// CursorStyle returns the parameter of DECSCUSR for what it has set.
func (m *Modes) CursorStyle() int {
	style := 2 * m.shape
	switch {
	case m.shapeBlink == Unset:
		return 0
	case m.shape == 0:
		style = 8 // no style, but steady
	}
	if m.shapeBlink == On {
		style--
	}
	return style
}

// States of a mode in DECRPM.
const (
	modeUnknown = iota
	modeSet
	modeReset
	modeAlwaysSet
	modeAlwaysReset
)

func setOrReset(set bool) int {
	if set {
		return modeSet
	}
	return modeReset
}

// State returns what DECRPM says of a mode that SM sets.
func (m *Modes) State(mode int) int {
	switch mode {
	case 2:
		return modeAlwaysReset
	case 4:
		return setOrReset(m.Insert)
	case 12:
		return modeAlwaysSet
	case 20:
		return setOrReset(m.NewLine)
	}
	return modeUnknown
}
