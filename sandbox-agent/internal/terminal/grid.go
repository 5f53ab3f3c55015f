package terminal

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen"

// A grid is a terminal's screen: a program's output goes in, what viewers are
// to see and the answers to terminal queries come out. Package screen has the
// real one.
type grid interface {
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

var _ grid = (*screen.Screen)(nil)
