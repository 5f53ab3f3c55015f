package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// Line returns the text of a row of the screen, counted from 0, without the
// blank cells at its end.
func (s *Screen) Line(row int) string { return s.grid.Line(row) }

// AppendPlain appends what the screen shows, and the newest history rows above it
// of the normal screen, as plain text: each line ends with a line feed, a row
// that continues the one above is of the same line, empty cells are spaces, and
// there are no blanks at the end of a line and no empty lines at the end.
func (s *Screen) AppendPlain(dst []byte, history int) []byte { return s.grid.AppendPlain(dst, history) }

// TakeHistory appends the lines above the normal screen as [Screen.AppendPlain]
// does, with those that are empty, and forgets them. A line that the screen's
// first row continues stays.
func (s *Screen) TakeHistory(dst []byte) []byte { return s.grid.TakeHistory(dst) }

// BracketedPaste reports whether the program wants to be told what is pasted.
func (s *Screen) BracketedPaste() bool { return s.grid.Modes.BracketedPaste }

// TakeTangled reports whether, since it was last called, rows of the screen may
// have come to read otherwise than the output did: because the cursor went back
// or somewhere else, what is there was moved, or a line ended at the full
// width. Output that only goes forward, line by line, never does that.
func (s *Screen) TakeTangled() bool { return s.grid.TakeTangled() }

// Tangle has [Screen.TakeTangled] report true as if the cursor had gone
// somewhere else.
func (s *Screen) Tangle() { s.grid.Tangle() }

// AppendNewText appends the text of the screen, and of the rows that scrolled
// off its top since it was last called or [Screen.SkipNewText] was.
// Lines end with a line feed; a row that continues the one above, or that comes
// after one of the full width, is of the same line. Empty cells are spaces, but
// for those at the end of a line.
func (s *Screen) AppendNewText(dst []byte) []byte { return s.grid.AppendNewText(dst) }

// SkipNewText has the next [Screen.AppendNewText] leave out the rows that have
// scrolled off the top so far.
func (s *Screen) SkipNewText() { s.grid.SkipNewText() }

// Mask shows each text that the screen holds to secrets, which calls mask for
// the bytes [from, to) that must not be seen: asterisks take their place. The
// texts are those of both screens with all that is held above them, in which
// lines are as in [Screen.AppendNewText], of the title, of hyperlinks, and of a
// string that has begun. Rows are shown once more with the cells that a narrower
// size hides. It returns how often mask was called.
func (s *Screen) Mask(secrets func(text []byte, mask func(from, to int))) (n int) {
	n = s.grid.Mask(secrets)
	if s.state == oscString {
		s.str = []byte(grid.MaskString(string(s.str), secrets, &n))
	}
	return n
}

// MaskAsIn masks what raw, a screen of the same output without asterisks,
// shows to secrets as [Screen.Mask] does: the text that raw's last
// [Screen.AppendNewText] returned, or with whole all of both screens. A row's
// part of such a text is masked where s has the same characters there or
// asterisks, which it hasn't where it is behind raw or was shifted. Of a text of
// which few characters at most are no asterisks yet nothing is masked, and it
// doesn't count.
func (s *Screen) MaskAsIn(raw *Screen, whole bool, secrets func(text []byte, mask func(from, to, few int))) (n int) {
	return s.grid.MaskAsIn(raw.grid, whole, secrets)
}
