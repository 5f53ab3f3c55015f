// Package display keeps a terminal's screen: it takes what the program in front
// prints, answers its queries, masks secrets, writes the transcript, and draws
// keyframes.
package display

import (
	"log/slog"
	"sync/atomic"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

const (
	// maxBehind bounds what the screen of the log is behind with. A quarter of it
	// comes before it is looked whether both screens are the same again.
	maxBehind = 1 << 20
	// forkFrom is from how many bytes on a copy of the other screen costs less
	// than to parse them.
	forkFrom = 32 << 10
	// maxUnseen is after how many bytes of output at most the screen is looked at
	// for secrets, where there are any.
	maxUnseen = 4 << 10
)

// A Display owns a terminal's screen. It alone writes output to the transcript,
// so the screen is always that of the whole log. It is not safe for concurrent
// use: its terminal has a lock for it.
//
// Once there is a secret a display has two screens. What a program prints goes
// to raw, which knows its true state and answers its queries at once; then
// through the program's stream, which masks, and may hold bytes back; then to
// grid, which is the screen of the log. Before the first secret there is the
// latter alone, and while nothing is masked both are the same: then grid is
// behind, and caught up when somebody looks at it.
type Display struct {
	// Static after construction.
	transcript *transcript.Transcript
	written    *atomic.Uint64 // bytes added to the transcript
	logs       *slog.Logger

	// The programs.
	own   *Feed // of the terminal's own program
	front *Feed // whose output is seen

	// The screen and its keyframes.
	grid     Screen // the screen of the log
	out      []byte // what the first screen let out
	frames   frames // drawn of it
	tooLarge int    // screens that no keyframe can hold

	// The masking.
	set   *redact.Set
	raw   *screen.Screen // nil: there has never been a secret
	buf   []byte         // what a stream let out
	text  []byte         // of grid
	read  []byte         // of raw
	spans []redact.Span

	// Whether grid is parsed.
	same       bool   // grid would be raw.Fork() if it had parsed behind
	behind     []byte // unmasked output, of which raw has all and grid nothing
	apart      int    // bytes of output since grid was last compared with raw
	mostBehind int    // maxBehind but in tests

	// The screen must be looked at whatever comes: what was held back when raw was
	// may have come since; and a secret may go on in the bytes of output that come
	// next, line by line.
	again bool
	watch int

	// Output that was drawn on the screen out of order has shown a secret, which is
	// masked there. The log, which has not got that output, must begin anew.
	due   bool
	found int // secrets that were drawn out of order
}

// A Feed is the output of a program on its way to the log. Its zero value is
// ready.
type Feed struct {
	stream *redact.Stream // nil: there has never been a secret
	loose  []byte         // let out by stream, and not shown yet
}

// holdsBack reports whether output is held back.
func (s *Feed) holdsBack() bool { return s.stream != nil && s.stream.Held() > 0 }

// New returns a Display that writes to log what own, the terminal's own program,
// prints. Its screen is first, which must be as large as log's. What it writes
// is added to written.
func New(log *transcript.Transcript, first Screen, own *Feed, written *atomic.Uint64, logs *slog.Logger) *Display {
	return &Display{
		transcript: log, written: written, logs: logs,
		own: own, front: own, grid: first, mostBehind: maxBehind,
	}
}

// Shows reports whether the output of s is seen.
func (d *Display) Shows(s *Feed) bool { return d.front == s }

// HoldsBack reports whether output of the program in front is held back, because
// it may be the beginning of a secret.
func (d *Display) HoldsBack() bool { return d.front.holdsBack() }

// Due reports whether the log must begin anew, see [Display.Replace]: the screen
// has masked a secret that was drawn out of order. Until then the log gets no
// output.
func (d *Display) Due() bool { return d.due }

// Found returns how many secrets were drawn out of order so far.
func (d *Display) Found() int { return d.found }

// Secrets returns the set of those that are masked.
func (d *Display) Secrets() *redact.Set { return d.set }

// BracketedPaste reports whether the program in front takes pastes as such.
func (d *Display) BracketedPaste() bool { return d.first().BracketedPaste() }

// Fork returns a copy of the screen of the log.
func (d *Display) Fork() *screen.Screen { return d.screen().Fork() }

// Write takes output of the program in front, with end its last, and writes what
// is to be seen of it to the transcript. It appends the answers to its queries to
// answers, and reports whether p was more than such queries.
func (d *Display) Write(answers, p []byte, end bool) (a []byte, printed bool) {
	for d.raw != nil && len(p) > maxUnseen {
		var some bool
		answers, some = d.write(answers, p[:maxUnseen], false)
		p, printed = p[maxUnseen:], printed || some
	}
	answers, some := d.write(answers, p, end)
	return answers, printed || some
}

// write is Write for output after which the screen is looked at.
func (d *Display) write(answers, p []byte, end bool) (a []byte, printed bool) {
	d.out, answers = d.first().Write(d.out[:0], answers, p)
	if end {
		d.out = d.first().Flush(d.out)
	}
	printed = len(d.out) > 0 || end
	d.append(d.masked(d.out, end))
	return answers, printed
}

// screen returns the screen of the log.
func (d *Display) screen() Screen {
	if len(d.behind) > forkFrom {
		d.grid, d.behind = d.raw.Fork(), nil // costs less than to parse so much
	}
	d.catchUp()
	return d.grid
}

// catchUp has grid parse what it is behind with.
func (d *Display) catchUp() {
	if len(d.behind) > 0 {
		d.grid.Write(nil, nil, d.behind)
		d.behind = d.behind[:0]
	}
}

// differs says that grid is no longer the same as raw, and has it parsed with all
// output from now on.
func (d *Display) differs() {
	d.catchUp()
	d.same, d.behind, d.apart = false, nil, 0
}

// first returns the screen that output goes to first.
func (d *Display) first() Screen {
	if d.raw != nil {
		return d.raw
	}
	return d.grid
}

// append adds what the screen let out to the transcript.
func (d *Display) append(out []byte) {
	if len(out) == 0 {
		return
	}
	d.moved()
	d.transcript.Append(out)
	d.written.Add(uint64(len(out)))
}

// Resize gives the screen another size.
func (d *Display) Resize(cols, rows int) {
	d.screen().Resize(cols, rows)
	if d.raw != nil {
		d.raw.Resize(cols, rows)
	}
	d.moved()
}

// Plain returns the screen and as many rows above it as plain text, without
// secrets.
func (d *Display) Plain(history int) []byte {
	text := d.screen().AppendPlain(nil, history)
	if d.set.Empty() {
		return text
	}
	return d.set.Mask(text)
}

// HandOver ends what the program in front left unfinished and switched on: the
// screen gets the modes to, and HandOver returns those of before. From then on
// the output of s is seen. Where there are secrets, what a coding agent has held
// back is masked, since it has ended; what the terminal's own program has held
// back comes when that goes on.
func (d *Display) HandOver(s *Feed, to screen.Modes) screen.Modes {
	seq, was := d.first().AppendHandover(nil, to)
	out, _ := d.first().Write(nil, nil, seq)
	if d.raw == nil {
		d.append(out)
		d.front = s
		return was
	}
	d.differs() // what is unfinished may be so in one of them alone
	if s.stream == nil {
		s.stream = d.set.NewStream()
	}
	from := d.front
	d.buf = d.buf[:0]
	if from == d.own {
		from.loose = from.stream.Write(from.loose, []byte{can}) // it gave up what was unfinished
	} else {
		d.buf = from.stream.Flush(append(d.buf, from.loose...))
		from.stream = nil // it has ended, and needs no secrets
	}
	d.append(d.show(nil, d.buf, false))
	seq, _ = d.grid.AppendHandover(nil, to)
	d.append(d.show(nil, seq, false))
	d.front = s
	return was
}

// Replace has the screen become that of who has only a keyframe of it, which it
// returns: the first output of a new epoch of the log, which the caller begins.
// What the present screen holds back comes behind it.
func (d *Display) Replace() []byte {
	d.differs()
	grid := screen.New(d.transcript.Size())
	first, _ := grid.Write(nil, nil, d.grid.Flush(d.Draw(WishHistory)))
	grid.TakeTangled()
	d.grid = grid
	d.moved()
	d.due = false
	return first
}
