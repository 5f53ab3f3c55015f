package screen_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

// Queries that a Screen answers as xterm.js would. Others differ on purpose:
// device attributes, the version, termcap, colours, SGR and the cursor's style.
func comparableQueries() []string {
	queries := []string{"\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1bP$qr\x1b\\", "\x1bP$q\"q\x1b\\", "\x1b[>c"}
	for _, mode := range []int{2, 4, 20, 12, 99} {
		queries = append(queries, fmt.Sprintf("\x1b[%d$p", mode))
	}
	for _, mode := range []int{1, 6, 7, 8, 9, 25, 45, 47, 66, 67, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1048, 1049, 2004, 2026, 99} {
		queries = append(queries, fmt.Sprintf("\x1b[?%d$p", mode))
	}
	return queries
}

var positionReport = regexp.MustCompile(`^(\x1b\[\??\d+;)(\d+)R$`)

// withinScreen corrects a position that xterm.js reports beyond the last
// column, when the next character wraps.
func withinScreen(answer string, cols int) string {
	m := positionReport.FindStringSubmatch(answer)
	if m == nil {
		return answer
	}
	col, err := strconv.Atoi(m[2])
	if err != nil {
		return answer
	}
	return m[1] + strconv.Itoa(min(col, cols)) + "R"
}

// TestAnswers asks about the states that random streams lead to.
func TestAnswers(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	o := startOracle(t)
	queries := comparableQueries()
	for n := range uint64(*oracleStreams / 4) {
		s := newScript(seed, n, 40)
		if !s.Plain {
			continue
		}
		g := newScreenGrid(s.Cols, s.Rows)
		r := request{Cols: s.Cols, Rows: s.Rows, Scrollback: historyLimit}
		cols := s.Cols
		for _, step := range s.Steps {
			if step.Cols != 0 {
				cols = step.Cols
				g.Resize(cols, step.Rows)
				r.Steps = append(r.Steps, oracleStep{Resize: &[2]int{cols, step.Rows}})
				continue
			}
			out, _ := g.Write(nil, nil, []byte(step.Output))
			r.Steps = append(r.Steps, oracleStep{Write: append([]byte{}, out...)})
		}
		var got []string
		for _, query := range queries {
			out, answer := g.Write(nil, nil, []byte(query))
			if len(out) > 0 {
				t.Errorf("%q lets %q out", query, out)
			}
			got = append(got, string(answer))
			r.Steps = append(r.Steps, oracleStep{Write: []byte(query)})
		}
		reply := o.ask(t, r)[0]
		if reply.Error != nil {
			continue
		}
		for i, query := range queries {
			if want := withinScreen(reply.Answers[i], max(cols, 2)); got[i] != want {
				t.Errorf("to %q got %q, want %q\n%s", query, got[i], want, s)
			}
		}
		if t.Failed() {
			return
		}
	}
}
