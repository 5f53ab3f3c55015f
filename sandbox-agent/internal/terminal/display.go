package terminal

import (
	"log/slog"
	"sync"
	"time"

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
)

// A display owns a terminal's screen. It takes what the program in front
// prints, answers its queries, masks secrets and writes the transcript, so the
// screen is always that of the whole log.
//
// Once there is a secret a display has two screens. What a program prints goes
// to raw, which knows its true state and answers its queries at once; then
// through the program's stream, which masks, and may hold bytes back; then to
// grid, which is the screen of the log. Before the first secret there is the
// latter alone, and while nothing is masked both are the same: then grid is
// behind, and caught up when somebody looks at it.
type display struct {
	// Static after construction.
	transcript *transcript.Transcript
	counts     *counts
	logs       *slog.Logger

	// mu is held while output is parsed and masked. It is the outermost of a
	// terminal's locks, see doc.go.
	mu sync.Mutex

	// Guarded by mu: the programs.
	own   *feed // of the terminal's own program
	front *feed // whose output is seen; its program's reader holds mu while it writes

	// Guarded by mu: the screen and its keyframes.
	grid     grid      // the screen of the log
	out      []byte    // what the first screen let out
	frames   frames    // drawn of it
	taken    time.Time // when the last keyframes were taken
	tooLarge int       // screens that no keyframe can hold

	// Guarded by mu: the masking.
	set   *redact.Set
	raw   *screen.Screen // nil: there has never been a secret
	buf   []byte         // what a stream let out
	text  []byte         // of grid
	read  []byte         // of raw
	spans []redact.Span

	// Guarded by mu: whether grid is parsed.
	same       bool   // grid would be raw.Fork() if it had parsed behind
	behind     []byte // unmasked output, of which raw has all and grid nothing
	apart      int    // bytes of output since grid was last compared with raw
	mostBehind int    // maxBehind but in tests

	// Guarded by mu. The screen must be looked at whatever comes: what was held
	// back when raw was may have come since; and a secret may go on in the bytes
	// of output that come next, line by line.
	again bool
	watch int

	// Guarded by mu. Output that was drawn on the screen out of order has shown a
	// secret, which is masked there. The log, which has not got that output, is
	// about to begin anew.
	due   bool
	last  time.Time // when the log last did so
	found int       // secrets that were drawn out of order
}

// A feed is the output of a program on its way to the log. The display's lock
// guards it.
type feed struct {
	stream *redact.Stream // nil: there has never been a secret
	loose  []byte         // let out by stream, and not shown yet
}

// holdsBack reports whether output is held back.
func (s *feed) holdsBack() bool { return s.stream != nil && s.stream.Held() > 0 }

func newDisplay(log *transcript.Transcript, own *feed, counts *counts, logs *slog.Logger) *display {
	return &display{
		transcript: log, counts: counts, logs: logs,
		own: own, front: own, grid: screen.New(log.Size()), mostBehind: maxBehind,
	}
}

// write takes output of the program in front, with end its last, and writes what
// is to be seen of it to the transcript. It appends the answers to its queries to
// answers, and reports whether p was more than such queries. The caller holds mu.
func (d *display) write(answers, p []byte, end bool) (a []byte, printed bool) {
	d.out, answers = d.first().Write(d.out[:0], answers, p)
	if end {
		d.out = d.first().Flush(d.out)
	}
	printed = len(d.out) > 0 || end
	d.append(d.masked(d.out, end))
	return answers, printed
}

// screen returns the screen of the log. The caller holds mu.
func (d *display) screen() grid {
	if len(d.behind) > forkFrom {
		d.grid, d.behind = d.raw.Fork(), nil // costs less than to parse so much
	}
	d.catchUp()
	return d.grid
}

// catchUp has grid parse what it is behind with. The caller holds mu.
func (d *display) catchUp() {
	if len(d.behind) > 0 {
		d.grid.Write(nil, nil, d.behind)
		d.behind = d.behind[:0]
	}
}

// differs says that grid is no longer the same as raw, and has it parsed with all
// output from now on. The caller holds mu.
func (d *display) differs() {
	d.catchUp()
	d.same, d.behind, d.apart = false, nil, 0
}

// first returns the screen that output goes to first. The caller holds mu.
func (d *display) first() grid {
	if d.raw != nil {
		return d.raw
	}
	return d.grid
}

// append adds what the screen let out to the transcript. The caller holds mu.
func (d *display) append(out []byte) {
	if len(out) == 0 {
		return
	}
	d.moved()
	d.transcript.Append(out)
	d.counts.output(len(out))
}

// resize gives the screen another size. The caller holds mu.
func (d *display) resize(cols, rows int) {
	d.screen().Resize(cols, rows)
	if d.raw != nil {
		d.raw.Resize(cols, rows)
	}
	d.moved()
}

// plain returns the screen and as many rows above it as plain text, without
// secrets.
func (d *display) plain(history int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := d.screen().AppendPlain(nil, history)
	if d.set.Empty() {
		return text
	}
	return d.set.Mask(text)
}

// handOver ends what the program in front left unfinished and switched on: the
// screen gets the modes to, and handOver returns those of before. From then on
// the output of s is seen. Where there are secrets, what a coding agent has held
// back is masked, since it has ended; what the terminal's own program has held
// back comes when that goes on. The caller holds mu.
func (d *display) handOver(s *feed, to screen.Modes) screen.Modes {
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

// replace has the screen become that of who has only a keyframe of it, which it
// returns: the beginning of a new epoch. What the present screen holds back
// comes behind it. The caller holds mu.
func (d *display) replace() []byte {
	d.differs()
	grid := screen.New(d.transcript.Size())
	first, _ := grid.Write(nil, nil, d.grid.Flush(d.draw(wishHistory)))
	grid.TakeTangled()
	d.grid = grid
	d.moved()
	d.taken = time.Time{} // a keyframe may be had at once
	d.due = false
	return first
}
