package generator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// childEnv makes the test's executable a generator process.
const childEnv = "GENERATOR_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		Register("calm", newCalm)
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// calm is a worker that counts, waits, fails and dies.
type calm struct {
	job  *Job
	spec struct{ Name string }
}

func newCalm(_ context.Context, job *Job) (Worker, error) {
	w := &calm{job: job}
	if err := job.Decode(&w.spec); err != nil {
		return nil, err
	}
	if w.spec.Name == "broken" {
		return nil, errors.New("can't be made")
	}
	return w, nil
}

func (w *calm) Close() {}

func (w *calm) Do(ctx context.Context, order string, arg json.RawMessage) (any, error) {
	switch order {
	case "count":
		var n int64
		if err := json.Unmarshal(arg, &n); err != nil {
			return nil, err
		}
		w.job.Rec.Counter("counted").Add(n)
		w.job.Rec.Latency("echo").Record(time.Now(), time.Now().Add(time.Millisecond))
		return w.spec.Name, nil
	case "wait":
		<-ctx.Done()
		return nil, nil
	case "fail":
		return nil, errors.New("not today")
	case "die":
		os.Stderr.WriteString("last words\n")
		os.Exit(3)
	}
	return nil, errors.New("unknown order")
}

func startPool(t *testing.T) (*Pool, *measure.Collection) {
	t.Helper()
	t.Setenv(childEnv, "1")
	out := measure.NewCollection(nil)
	pool, err := NewPool(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, out
}

func startCalm(t *testing.T, pool *Pool, names ...string) *Group {
	t.Helper()
	var specs []any
	for _, name := range names {
		specs = append(specs, map[string]string{"Name": name})
	}
	g, err := pool.Start(t.Context(), "calm", specs)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestProcessesDoWhatTheyAreTold(t *testing.T) {
	pool, out := startPool(t)
	g := startCalm(t, pool, "a", "b")
	ctx := t.Context()
	for block := range 2 {
		if err := g.Phase(ctx, "work", block); err != nil {
			t.Fatal(err)
		}
		if err := g.Begin(ctx, time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		answers, err := Ask[string](ctx, g, "count", 1+block, 10)
		if err != nil || strings.Join(answers, "") != "ab" {
			t.Fatalf("answers %q, %v", answers, err)
		}
		if n := out.Count("counted", block); n != int64(11+block) {
			t.Errorf("block %d has %d when the answer comes, want %d", block, n, 11+block)
		}
	}
	if n := out.Count("counted", -1); n != 23 {
		t.Errorf("%d were counted in all, want 23", n)
	}
	if pids := pool.PIDs(); len(pids) != 2 || pids["generator-1"] == 0 {
		t.Errorf("processes %v", pids)
	}
	g.Close()
	if pids := pool.PIDs(); len(pids) != 0 {
		t.Errorf("processes after the end %v", pids)
	}
}

func TestOrdersOverlap(t *testing.T) {
	pool, _ := startPool(t)
	g := startCalm(t, pool, "a")
	waiting, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := g.Ask(waiting, "wait")
		over <- err
	}()
	if _, err := g.Ask(t.Context(), "count", 1); err != nil {
		t.Errorf("an order while another one is under way: %v", err)
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("an order that was given up: %v", err)
	}
}

func TestFailuresAreTold(t *testing.T) {
	pool, _ := startPool(t)
	if _, err := pool.Start(t.Context(), "calm", []any{map[string]string{"Name": "broken"}}); err == nil || !strings.Contains(err.Error(), "can't be made") {
		t.Errorf("a worker that can't be made: %v", err)
	}
	if _, err := pool.Start(t.Context(), "nothing", []any{1}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("an unknown kind: %v", err)
	}
	g := startCalm(t, pool, "a", "b")
	if _, err := g.Ask(t.Context(), "fail"); err == nil || !strings.Contains(err.Error(), "not today") {
		t.Errorf("an order that fails: %v", err)
	}
	_, err := g.Ask(t.Context(), "die")
	if err == nil || !strings.Contains(err.Error(), "last words") {
		t.Errorf("a process that dies: %v", err)
	}
	if _, err := g.Ask(t.Context(), "count", 1); err == nil {
		t.Error("an order to processes of which one is dead succeeds")
	}
}

func TestLinesAreBounded(t *testing.T) {
	var v any
	lines := bufio.NewReader(strings.NewReader(strings.Repeat("x", maxLine+1)))
	if err := readLine(lines, &v); err == nil {
		t.Error("a line of any length is taken")
	}
	lines = bufio.NewReaderSize(strings.NewReader(`"`+strings.Repeat("x", 100_000)+"\"\n{}"), 16)
	if err := readLine(lines, &v); err != nil || len(v.(string)) != 100_000 {
		t.Errorf("a long line: %v", err)
	}
	if err := readLine(lines, &v); err == nil {
		t.Error("a line that is cut off is taken")
	}
}

func TestProcessesAreAsFewAsHaveTheTime(t *testing.T) {
	if n := Processes(10, 1); n != 1 {
		t.Errorf("10 viewers have %d processes", n)
	}
	if n := Processes(20_000, 1); n < 3 {
		t.Errorf("20,000 viewers have %d processes", n)
	}
	if err := Fits(1_000_000_000, 1); err == nil || !strings.Contains(err.Error(), "--generators") {
		t.Errorf("a billion sockets in a process: %v", err)
	}
}
