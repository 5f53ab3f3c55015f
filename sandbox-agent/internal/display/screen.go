package display

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen"

// A Screen takes a program's output, and returns what viewers are to see and the
// answers to terminal queries. [screen.Screen] is one, and the only one that may
// have secrets masked.
type Screen interface {
	Write(out, answers, p []byte) (o, a []byte)
	Flush(out []byte) []byte
	Resize(cols, rows int)
	AppendKeyframe(dst []byte, history int) []byte
	AppendPlain(dst []byte, history int) []byte
	BracketedPaste() bool
	AppendHandover(dst []byte, to screen.Modes) ([]byte, screen.Modes)
	Fork() *screen.Screen
	TakeTangled() bool
	SkipNewText()
	AppendNewText(dst []byte) []byte
	Mask(secrets func(text []byte, mask func(from, to int))) (n int)
	MaskAsIn(raw *screen.Screen, whole bool, secrets func(text []byte, mask func(from, to, few int))) (n int)
}

var _ Screen = (*screen.Screen)(nil)
