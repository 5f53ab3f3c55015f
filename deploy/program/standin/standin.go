// Package standin is a stand-in for coding agents' programs, for tests, benchmarks
// and load tests: it speaks on its standard input and output as claude, codex,
// gemini, opencode or cursor-agent does, asks no model, and does what the message
// says.
//
// # Script
//
// A message is a list of steps, one per line. A line that is no step is answered
// with "You said: " and the line.
//
//	say:TEXT           says TEXT, word by word, and then the whole of it
//	think:TEXT         thinks TEXT, where its protocol knows thoughts
//	deltas:N@RATE      says N words, RATE of them in a second, whatever the reader does; without
//	                   @RATE as fast as it can. A word is its index from 0, a colon, the time in
//	                   Unix nanoseconds at which it was written, and a space
//	deltas:N@RATE/B    the same, with words of at least B bytes
//	tool:NAME {JSON}   uses a tool; asks first if its permission mode says so. Bash runs the
//	                   command in a process group of its own, Write writes the file, Read reads
//	                   it, others do nothing
//	ask:NAME {JSON}    uses a tool, and asks first in every mode but bypassPermissions
//	question           asks a person to choose A or B, and says what was chosen
//	plan:TEXT          asks whether the plan TEXT is good
//	withdraw:D         asks, and takes the question back after the duration D
//	images             says how many images came with the message, and how many bytes they are
//	recall             says what it was told before, also before it was resumed, one per line
//	env:NAME           says the value of an environment variable
//	stderr:TEXT        writes TEXT and a line end to standard error
//	sleep:D            waits for the duration D
//	later:D            begins a turn of its own D after the end of this one, if nothing runs then
//	fail:TEXT          ends the turn with the error TEXT
//	huge               prints 10 MB without a line end, then a line end
//	huge:N             the same with N bytes
//	garbage            prints lines that are not of its protocol: words, JSON of other kinds, JSON
//	                   nested 100,000 deep, control characters
//	halfutf8           prints half a character within a line, and at the end of another
//	silent             never says anything again, and doesn't end when its input does
//	ignore-int         from now on it ignores SIGINT and SIGTERM, and doesn't obey an abort
//	crash              is killed
//	exit:N             ends with status N at once
//	fork               leaves a child in its process group that holds its output open for a
//	                   minute, and ends with status 0 at once
//	fork-away          the same with a child in a session of its own
//
// A duration is one of Go's, such as 50ms. An abort ends every step at once, the
// ones from silent on excepted.
//
// # Memory
//
// Each stand-in keeps its conversations where the real program does, with the
// same ids on its output and on disk, so that they can be listed and resumed.
// claude's are in $HOME/.claude/projects, codex's in $HOME/.codex/sessions, gemini's in
// $HOME/.gemini/tmp, opencode's in the database $HOME/.local/share/opencode/opencode.db.
// Of cursor-agent's real ones nobody has told the form: the stand-in's are lines in
// $HOME/.cursor/chats that only it reads.
//
// # Starting it
//
// [Install] writes executables with the names of the real programs into a folder,
// which start some other program: loadtest with the argument stand-in, or a test
// binary that calls [Hook].
package standin

import (
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
)

// Role is the first argument of a test binary that is to be a stand-in.
const Role = "stand-in"

// programs are the programs that it stands in for, by name. Each returns the
// status to exit with.
var programs = map[string]func(*process) int{
	"claude": claude, "codex": codex, "cursor-agent": cursor, "gemini": gemini, "opencode": opencode,
}

// Programs returns the names of the programs that it can stand in for, sorted.
func Programs() []string { return slices.Sorted(maps.Keys(programs)) }

// Hook makes this process a stand-in, and doesn't return, if its first argument
// is [Role]. The second one is the program's name. TestMain calls it first.
func Hook() {
	if len(os.Args) > 1 && os.Args[1] == Role {
		os.Exit(Main(os.Args[2:]))
	}
}

// Main is the program args[0] with the arguments args[1:], on this process's
// standard input and output. It returns the status to exit with.
func Main(args []string) int {
	if len(args) == 0 || programs[args[0]] == nil {
		fmt.Fprintf(os.Stderr, "a stand-in for one of %v must be named\n", Programs())
		return 2
	}
	signal.Reset(os.Interrupt, syscall.SIGTERM) // whoever called Main may catch them
	runtime.GOMAXPROCS(2)                       // there may be hundreds of stand-ins
	return programs[args[0]](newProcess(args[1:]))
}
