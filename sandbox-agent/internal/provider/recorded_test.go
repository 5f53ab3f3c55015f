package provider

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Flags of the recordings.
var (
	update = flag.Bool("provider.update", false, "write anew what comes of the recorded streams")
	record = flag.String("provider.record", "", "record testdata/<name>/turns.txt with the real program of this provider, in HOME and the environment as they are, working in $WORK")
)

// A recording is a text: what people do, what the program prints, and what comes
// of it.
//
//	begin START     < LINE            event EVENT    close
//	send TURN       answer ANSWER     > LINE         ask, withdraw, native, done
//	abort           end CODE
//
// The first two columns are told to a talk, which answers with the last two.
func inputs(line string) bool {
	word, _, _ := strings.Cut(line, " ")
	return slices.Contains([]string{"begin", "send", "abort", "<", "answer", "end"}, word)
}

// saidAnswer is the argument of answer.
type saidAnswer struct {
	Question string
	Answer   Answer
}

// retold tells a talk the inputs of a recording and returns them with what comes
// of them.
func retold(t testing.TB, p Provider, text string) (out []string, c *checked) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !inputs(line) {
			continue
		}
		out = append(out, line)
		word, rest, _ := strings.Cut(line, " ")
		if word == "begin" {
			c = check(t, p, told[Start](t, rest))
		}
		c.told(t, word, rest)
		out = append(out, c.drain()...)
	}
	return out, c
}

func (c *checked) told(t testing.TB, word, rest string) {
	t.Helper()
	switch word {
	case "begin":
		c.begin()
	case "send":
		c.send(told[Turn](t, rest))
	case "<":
		c.line(rest)
	case "answer":
		a := told[saidAnswer](t, rest)
		c.answer(a.Question, a.Answer)
	case "abort":
		c.take(c.talk.Abort())
	case "end":
		c.end(told[int](t, rest), "")
	}
}

func told[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// TestRecorded replays what real programs have printed, and compares what comes
// of it.
func TestRecorded(t *testing.T) {
	for _, p := range All(Options{})[1:] {
		files, err := filepath.Glob(filepath.Join("testdata", p.Name(), "*.txt"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no recording: %v", p.Name(), err)
		}
		for _, file := range files {
			t.Run(file, func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				out, c := retold(t, p, string(text))
				got := strings.Join(out, "\n") + "\n"
				if c.dones == 0 {
					t.Error("no turn ends")
				}
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if want := string(text); got != want && !*update {
					t.Errorf("something else comes of it, first in %s", firstOther(got, want))
				}
			})
		}
	}
}

// firstOther returns the first line in which two texts differ.
func firstOther(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "line\n" + a[i] + "\nwhich was\n" + b[i]
		}
	}
	return "length"
}

// A step is one message to a real program, and what people do meanwhile.
type step struct {
	say   string
	allow bool
	abort string // "tool": while one runs; "early": as soon as it may run; "ask": at a question
}

// steps have each program say, think, ask, use tools and stop. A model of the
// recorder's has to understand them: it calls the tool that TOOL names, answers
// with what stands behind RAW, and repeats what persons have said on RECALL.
func steps(name string) []step {
	shell := map[string]string{
		"codex":    `TOOL exec_command {"cmd":"%","sandbox_permissions":"require_escalated","justification":"to see"} END`,
		"gemini":   `TOOL run_shell_command {"command":"%"} END`,
		"opencode": `TOOL bash {"description":"d","command":"%"} END`,
	}[name]
	write := map[string]string{
		"codex":    `TOOL exec_command {"cmd":"apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\nEOF"} END`,
		"gemini":   `TOOL write_file {"file_path":"new.txt","content":"hello\n"} END`,
		"opencode": `TOOL write {"filePath":"new.txt","content":"hello\n"} END`,
	}[name]
	do := func(command string) string { return strings.ReplaceAll(shell, "%", command) }
	list := []step{
		{say: "hello"},
		{say: do("echo one; echo two"), allow: true},
		{say: do("echo no; echo more")},
		{say: write, allow: true},
		{say: do("echo begun; sleep 30"), allow: true, abort: "tool"},
		{say: do("echo asked; sleep 31"), abort: "ask"},
		{say: "FAIL"},
		{say: "RECALL"},
	}
	if name == "codex" {
		list = append(list,
			step{say: do("echo soon; sleep 32"), allow: true, abort: "early"},
			step{say: `RAW [{"type":"web_search_call","status":"completed","action":{"type":"search","query":"what is a medlar"}}]`})
	}
	return list
}

// TestRecord makes the recording of one real program.
func TestRecord(t *testing.T) {
	if *record == "" {
		t.Skip("-provider.record")
	}
	p, ok := ByName(All(Options{}), *record)
	if !ok {
		t.Fatalf("no provider %q", *record)
	}
	native := ""
	r := &recorder{t: t, p: p}
	for _, list := range [][]step{steps(p.Name()), {{say: "RECALL"}}} {
		native = r.process(Start{Dir: os.Getenv("WORK"), Native: native}, list)
	}
	text := strings.Join(r.log, "\n") + "\n"
	text = strings.NewReplacer(os.Getenv("WORK"), "/srv/dev/project", os.Getenv("HOME"), "/srv/dev").Replace(text)
	dir := filepath.Join("testdata", p.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "turns.txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// recorder talks to a real program and writes down how.
type recorder struct {
	t     *testing.T
	p     Provider
	log   []string
	lines chan string
	in    io.WriteCloser
	c     *checked
}

// process has one process do the turns of list. It returns the session's id.
func (r *recorder) process(s Start, list []step) (native string) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	command := r.p.Command(s)
	cmd := exec.CommandContext(ctx, command.Program, command.Args...)
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), command.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if r.in, err = cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.lines = make(chan string)
	go func() { // ends with the process's output
		defer close(r.lines)
		for scan := bufio.NewReader(out); ; {
			line, err := scan.ReadString('\n')
			if err != nil {
				return
			}
			r.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	r.c = check(r.t, r.p, s)
	r.input("begin", s)
	for i, st := range list {
		r.input("send", Turn{ID: "11111111-2222-4333-8444-00000000000" + string(rune('0'+i)), Content: st.say})
		if id := r.turn(st); id != "" {
			native = id
		}
	}
	r.in.Close()
	for range r.lines { // what it prints at its end
	}
	err = cmd.Wait()
	r.t.Logf("%v; stderr: %s", err, stderr.Bytes())
	r.input("end", cmd.ProcessState.ExitCode())
	return native
}

// turn follows a turn to its end.
func (r *recorder) turn(st step) (native string) {
	for {
		pending := r.pump()
		for _, e := range pending {
			word, rest, _ := strings.Cut(e, " ")
			switch {
			case word == "done":
				return native
			case word == "native":
				native = rest
			case word == "ask" && st.abort == "ask":
				r.input("abort", nil)
			case word == "ask":
				r.input("answer", saidAnswer{Question: told[Ask](r.t, rest).Question, Answer: Answer{Allow: st.allow}})
				if st.abort != "" {
					r.pump()
					if st.abort == "tool" {
						<-time.After(time.Second) // of a recording: until the tool has begun
					}
					r.input("abort", nil)
				}
			}
		}
		if len(r.c.out) > 0 {
			continue
		}
		line, ok := <-r.lines
		if !ok {
			r.t.Fatalf("it has ended; %s", strings.Join(r.log, "\n"))
		}
		if !noisy(line) {
			r.log = append(r.log, "< "+line)
			r.c.line(line)
		}
	}
}

// noisy reports whether a line is long and of no interest.
func noisy(line string) bool {
	return strings.Contains(line, "available_commands_update") || strings.Contains(line, "config_option_update")
}

func (r *recorder) input(word string, v any) {
	line := word
	if v != nil {
		line += " " + string(object(v))
	}
	r.log = append(r.log, line)
	_, rest, _ := strings.Cut(line, " ")
	r.c.told(r.t, word, rest)
}

// pump writes what is to be written and returns all that has come.
func (r *recorder) pump() []string {
	for _, e := range r.c.out {
		if w, ok := e.(Write); ok {
			if _, err := r.in.Write(w.Bytes); err != nil {
				r.t.Log(err)
			}
		}
	}
	list := r.c.drain()
	r.log = append(r.log, list...)
	return list
}
