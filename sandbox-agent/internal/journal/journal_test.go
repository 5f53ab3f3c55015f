package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a format of plain strings whose header counts the events that are
// gone.
type lines struct{ dropped int }

type head struct {
	At      protocol.Position
	Dropped int
}

type body struct {
	At   uint64
	Text string
}

func spell(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func (f *lines) Header(first protocol.Position) []byte { return spell(head{first, f.dropped}) }

func (f *lines) ParseHeader(line []byte) (protocol.Position, error) {
	var h head
	err := protocol.UnmarshalStrict(line, &h)
	f.dropped = h.Dropped
	return h.At, err
}

func (f *lines) Event(offset uint64, e string) []byte { return spell(body{offset, e}) }

func (f *lines) ParseEvent(line []byte) (uint64, string, error) {
	var b body
	err := protocol.UnmarshalStrict(line, &b)
	if err == nil && b.Text == "foreign" {
		err = journal.ErrDamaged
	}
	return b.At, b.Text, err
}

func (f *lines) Dropped(events []string) { f.dropped += len(events) }

// A disk is a folder, or memory, that counts and fails on demand.
type disk struct {
	journal.Folder
	memory   map[string][]byte // nil: it is the folder
	err      error             // of all writes; nil: they succeed
	replaced int
}

func (d *disk) Read(name string) ([]byte, error) {
	if d.memory != nil {
		return d.memory[name], nil
	}
	return d.Folder.Read(name)
}

func (d *disk) Append(name string, data []byte) error {
	if d.err != nil {
		return d.err
	}
	if d.memory != nil {
		d.memory[name] = append(d.memory[name], data...)
		return nil
	}
	return d.Folder.Append(name, data)
}

func (d *disk) Replace(name string, data []byte) error {
	if d.err != nil {
		return d.err
	}
	d.replaced++
	if d.memory != nil {
		d.memory[name] = data
		return nil
	}
	return d.Folder.Replace(name, data)
}

// A rig is a log, its format and its disk.
type rig struct {
	*journal.Log[string]
	t      testing.TB
	disk   *disk
	format *lines
	bound  eventlog.Bound
	lagged atomic.Uint64
}

var start = protocol.Position{Epoch: 0xfeed, Offset: 100}

func newRig(t testing.TB, bound eventlog.Bound) *rig {
	t.Helper()
	folder, err := journal.MakeFolder(filepath.Join(t.TempDir(), "logs"))
	must(t, err)
	r := &rig{t: t, disk: &disk{Folder: folder}, bound: bound, format: &lines{}}
	r.Log = journal.New(r.options(), start)
	return r
}

// inMemory returns a rig whose disk is memory.
func inMemory(t testing.TB, bound eventlog.Bound) *rig {
	r := &rig{t: t, disk: &disk{memory: map[string][]byte{}}, bound: bound, format: &lines{}}
	r.Log = journal.New(r.options(), start)
	return r
}

func (r *rig) options() journal.Options[string] {
	return journal.Options[string]{
		Disk: r.disk, Name: "a.jsonl", Format: r.format, Bound: r.bound, Lagged: &r.lagged,
	}
}

// reopen opens the log, as the next process does.
func (r *rig) reopen() {
	r.t.Helper()
	r.format = &lines{}
	var err error
	r.Log, err = journal.Open(r.options())
	must(r.t, err)
}

func (r *rig) append(events ...string) {
	r.t.Helper()
	must(r.t, r.Append(events...))
}

// held returns what the log holds, as one string.
func (r *rig) held() string {
	var words []string
	r.View(func(events *eventlog.Log[string]) {
		words = append(words, events.Epoch().String())
		for offset, e := range events.All() {
			words = append(words, fmt.Sprintf("%d=%s", offset, e))
		}
	})
	return strings.Join(words, " ")
}

func (r *rig) file() []byte {
	r.t.Helper()
	data, err := r.disk.Read("a.jsonl")
	must(r.t, err)
	return data
}

func (r *rig) write(data []byte) {
	r.t.Helper()
	if r.disk.memory != nil {
		r.disk.memory["a.jsonl"] = data
		return
	}
	must(r.t, os.WriteFile(r.disk.Path("a.jsonl"), data, 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReopen: a log goes on in the next process under its epoch.
func TestReopen(t *testing.T) {
	r := newRig(t, eventlog.Bound{Events: 10})
	if _, err := journal.Open(r.options()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log without a file: %v", err)
	}
	r.append("a", "b")
	r.append("c")
	before := r.held()
	r.reopen()
	if after := r.held(); after != before || after != "000000000000feed 100=a 101=b 102=c" {
		t.Errorf("%s, before %s", after, before)
	}
	r.append("d")
	if at := r.Position(); at != (protocol.Position{Epoch: start.Epoch, Offset: 104}) || r.disk.replaced != 1 {
		t.Errorf("at %s, replaced %d times", at, r.disk.replaced)
	}
	if info, err := os.Stat(r.disk.Path("a.jsonl")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	must(t, r.Remove())
	must(t, r.Remove())
	if names, err := r.disk.Names(".jsonl"); err != nil || len(names) != 0 {
		t.Errorf("%q, %v", names, err)
	}
}

// TestTorn cuts the file at every byte: whole events stay, half of one is
// nothing, and the log goes on under its epoch.
func TestTorn(t *testing.T) {
	r := inMemory(t, eventlog.Bound{})
	r.append("one", "two")
	r.append("three")
	whole := r.file()
	first := bytes.IndexByte(whole, '\n') + 1
	for size := first; size < len(whole); size++ {
		for _, tail := range []string{"", "\x00\x00\x00"} {
			r.write(append(bytes.Clone(whole[:size]), tail...))
			r.reopen()
			kept := bytes.Count(whole[first:size], []byte("\n"))
			if n := int(r.Position().Offset - start.Offset); n != kept || r.Position().Epoch != start.Epoch {
				t.Fatalf("cut at %d, then %q: %s", size, tail, r.held())
			}
			r.append("next")
			after := r.held()
			r.reopen()
			if got := r.held(); got != after {
				t.Fatalf("cut at %d, then %q: %s, then %s", size, tail, after, got)
			}
		}
	}
}

// TestDamaged: what no crash leaves is refused.
func TestDamaged(t *testing.T) {
	r := newRig(t, eventlog.Bound{Events: 3})
	r.append("one", "two")
	whole := string(r.file())
	part := strings.SplitAfter(whole, "\n")
	for what, content := range map[string]string{
		"empty": "", "half a header": part[0][:5], "no header": part[1], "a hole": part[0] + part[2], "twice": whole + part[1],
		"garbage within": part[0] + "x\n" + part[1], "of another log": strings.Replace(whole, "two", "foreign", 1),
		"over the bound": whole + `{"At":102,"Text":""}` + "\n" + `{"At":103,"Text":""}` + "\n",
	} {
		r.write([]byte(content))
		if _, err := journal.Open(r.options()); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, r.disk.PutAside("a.jsonl"))
	if _, err := os.Stat(r.disk.Path("a.jsonl.damaged")); err != nil {
		t.Error(err)
	}
}

// TestBounded: the file is as bounded as the log, whether events or bytes fill
// it, and its header is told of what went.
func TestBounded(t *testing.T) {
	for _, bound := range []eventlog.Bound{{Events: 20}, {Bytes: 1000}, {Events: 20, Bytes: 700}} {
		r := inMemory(t, bound)
		for i := range 200 {
			r.append(fmt.Sprintf("event number %d", i))
			data := r.file()
			_, events, _ := bytes.Cut(data, []byte("\n"))
			if n := bytes.Count(events, []byte("\n")); bound.Events > 0 && n > bound.Events || bound.Bytes > 0 && len(events) > bound.Bytes {
				t.Fatalf("%+v: %d events, %d bytes", bound, n, len(events))
			}
		}
		before, gone := r.held(), r.format.dropped
		r.reopen()
		if r.held() != before || r.format.dropped != gone || !strings.HasSuffix(before, "299=event number 199") {
			t.Errorf("%+v: %s after %s; %d and %d are gone", bound, r.held(), before, r.format.dropped, gone)
		}
		if r.disk.replaced > 30 {
			t.Errorf("%+v: the file was replaced %d times", bound, r.disk.replaced)
		}
	}
}

func TestTooLarge(t *testing.T) {
	r := newRig(t, eventlog.Bound{Events: 3, Bytes: 100})
	r.append("a")
	before, file := r.held(), r.file()
	for _, err := range []error{r.Append("a", "b", "c", "d"), r.Append(strings.Repeat("x", 100)), r.AppendAnyway(strings.Repeat("x", 100))} {
		if !errors.Is(err, journal.ErrTooLarge) || r.held() != before || !bytes.Equal(r.file(), file) {
			t.Errorf("%v: %s", err, r.held())
		}
	}
}

// TestDiskFails: what can't be stored isn't in the log, unless it has to be, and
// the log has another epoch then, once.
func TestDiskFails(t *testing.T) {
	r := newRig(t, eventlog.Bound{})
	r.append("a")
	sub, _, _ := r.Subscribe(nil)
	defer sub.Close()
	r.disk.err = errors.New("input/output error")
	if err := r.Append("b"); err != r.disk.err {
		t.Errorf("%v", err)
	}
	if _, _, err := sub.Next(t.Context()); err != journal.ErrReset {
		t.Errorf("the subscription ended with %v", err)
	}
	epoch := r.Position().Epoch
	if epoch == start.Epoch || r.Position().Offset != 101 {
		t.Errorf("%s", r.held())
	}
	if err := r.AppendAnyway("c"); err != r.disk.err {
		t.Errorf("%v", err)
	}
	late, _, _ := r.Subscribe(&protocol.Position{Epoch: epoch, Offset: 101})
	defer late.Close()
	r.disk.err = nil
	r.append("d")
	for _, want := range []string{"c", "d"} {
		if _, e, err := late.Next(t.Context()); err != nil || e != want {
			t.Errorf("%s, %v; want %s", e, err, want)
		}
	}
	before := r.held()
	r.reopen()
	if r.held() != before || r.Position().Epoch != epoch {
		t.Errorf("%s after %s", r.held(), before)
	}
}

// TestNames: the file that was written last comes first.
func TestNames(t *testing.T) {
	folder := journal.Folder(t.TempDir())
	for i, name := range []string{"b.jsonl", "c.jsonl", "a.jsonl", "a.txt"} {
		must(t, folder.Replace(name, nil))
		at := time.Unix(int64(1000+i), 0)
		must(t, os.Chtimes(folder.Path(name), at, at))
	}
	must(t, os.Mkdir(folder.Path("d.jsonl"), 0o700))
	if names, err := folder.Names(".jsonl"); err != nil || strings.Join(names, " ") != "a c b" {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := journal.Folder(folder.Path("none")).Names(""); err == nil {
		t.Error("names of a folder that isn't there")
	}
}

// TestLargeLog: a log takes tens of thousands of events, and events of 1 MiB,
// as a conversation has them; a restart finds what was there.
func TestLargeLog(t *testing.T) {
	r := inMemory(t, eventlog.Bound{Events: 50_000, Bytes: 4 << 20})
	batch := make([]string, 500)
	for i := range 40 {
		for j := range batch {
			batch[j] = fmt.Sprintf("delta %d of batch %d", j, i)
		}
		r.append(batch...)
	}
	for range 4 {
		r.append(strings.Repeat("x", 1<<20-64))
	}
	r.append("done")
	before := r.held()
	if n := len(r.file()); n > 4<<20+200 {
		t.Errorf("a file of %d bytes", n)
	}
	sub, at, gap := r.Subscribe(&start)
	sub.Close()
	if !gap || at.Offset != 100+20_000+5 {
		t.Errorf("from the start: %s, gap %t", at, gap)
	}
	r.reopen()
	if r.held() != before {
		t.Error("after a restart it is another")
	}
}

// TestModel appends, restarts and loses the end of the file at random, while a
// follower comes and goes by position. Whatever it has heard of survives, at the
// same offset of the same epoch.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := inMemory(t, eventlog.Bound{Events: rapid.IntRange(1, 12).Draw(rt, "bound")})
		var all []string // by offset since start
		heard := start
		catchUp := func(rt *rapid.T) {
			sub, at, gap := r.Subscribe(&heard)
			defer sub.Close()
			if at.Epoch != start.Epoch || !gap && at != heard || gap && at.Offset != start.Offset+uint64(len(all)) {
				rt.Fatalf("from %s: %s, gap %t", heard, at, gap)
			}
			for heard = at; heard.Offset < start.Offset+uint64(len(all)); heard.Offset++ {
				offset, e, err := sub.Next(t.Context())
				if err != nil || offset != heard.Offset || e != all[offset-start.Offset] {
					rt.Fatalf("at %d: %d %s, %v", heard.Offset, offset, e, err)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				events := rapid.SliceOfN(rapid.StringMatching(`[a-e]{0,9}`), 1, r.bound.Events).Draw(rt, "events")
				must(t, r.Append(events...))
				all = append(all, events...)
			},
			"follow": catchUp,
			"restart": func(rt *rapid.T) {
				if len(all) == 0 {
					rt.Skip("there is no file")
				}
				r.reopen()
			},
			"crash while appending": func(rt *rapid.T) {
				if len(all) == 0 {
					rt.Skip("there is no file")
				}
				half := r.format.Event(r.Position().Offset, "never heard of")
				cut := rapid.IntRange(1, len(half)-1).Draw(rt, "cut")
				r.write(append(r.file(), half[:cut]...))
				r.reopen()
			},
			"": func(rt *rapid.T) {
				next := start.Offset + uint64(len(all))
				r.View(func(events *eventlog.Log[string]) {
					if events.Epoch() != start.Epoch || events.Next() != next || events.Len() > r.bound.Events || events.Len() == 0 && len(all) > 0 {
						rt.Fatalf("%s [%d, %d), want %d", events.Epoch(), events.First(), events.Next(), next)
					}
					for offset, e := range events.All() {
						if e != all[offset-start.Offset] {
							rt.Fatalf("%s at %d, want %s", e, offset, all[offset-start.Offset])
						}
					}
				})
			},
		})
		catchUp(rt)
	})
}

// FuzzOpen: whatever stands in a file is read or refused, and what is read is
// written the same.
func FuzzOpen(f *testing.F) {
	r := inMemory(f, eventlog.Bound{Events: 4})
	for i := range 6 {
		must(f, r.Append(fmt.Sprint("event ", i)))
	}
	data := r.file()
	f.Add(data)
	f.Add(data[:len(data)-3])
	f.Add(bytes.ReplaceAll(data, []byte("event"), []byte("foreign")))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := inMemory(t, eventlog.Bound{Events: 4})
		r.write(data)
		var err error
		if r.Log, err = journal.Open(r.options()); err != nil {
			if !errors.Is(err, journal.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		must(t, r.Append("more"))
		before := r.held()
		r.reopen()
		if r.held() != before {
			t.Fatalf("%q, then %q", before, r.held())
		}
	})
}

// BenchmarkAppend appends one event, or a batch, on a real disk.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 50} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newRig(b, eventlog.Bound{Events: 50_000, Bytes: 16 << 20})
			batch := make([]string, n)
			for i := range batch {
				batch[i] = strings.Repeat("x", 300)
			}
			for b.Loop() {
				r.append(batch...)
			}
		})
	}
}
