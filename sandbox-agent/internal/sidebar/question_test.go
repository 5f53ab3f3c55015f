package sidebar

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// asks has a conversation ask whether a tool may be used.
func asks(id, tool, input string) func(*talk) {
	return func(k *talk) {
		k.emit(protocol.ChatEvent{Kind: protocol.ChatPermissionRequest, ToolName: tool, ChatQuestion: protocol.ChatQuestion{
			RequestID: id, Revision: 1, Input: []byte(input), ExpiresAt: "2026-01-01T00:00:55.000Z",
		}})
	}
}

// ends has it say that a question is over.
func ends(q protocol.ChatQuestion, by protocol.UserID) func(*talk) {
	return func(k *talk) {
		e := protocol.ChatEvent{Kind: protocol.ChatPermissionCancelled, ChatQuestion: q}
		if by != "" {
			e.From = &protocol.ChatFrom{UserID: by, GrantID: "gr_1"}
		}
		k.emit(e)
	}
}

// latest returns the newest entry.
func (r *rig) latest() Entry {
	r.t.Helper()
	_, answer := r.polls(0, 0)
	return answer.Entries[len(answer.Entries)-1]
}

// A question shows what it is about, and what became of it, by whom.
func TestQuestions(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.plays("c1", asks("apr_1", "Bash", `{"command":"rm -r x","description":"tidy up"}`))
		if e := r.latest(); e.Type != "question" || e.Tool != "Bash" || e.Input != "rm -r x" || e.RequestID != "apr_1" || e.Revision != 1 || e.ExpiresAt == "" || e.Cut {
			t.Errorf("%+v", e)
		}
		for _, c := range []struct {
			end  protocol.ChatQuestion
			by   protocol.UserID
			want string
		}{
			{protocol.ChatQuestion{Reason: protocol.CancelledDecided, Decision: protocol.AllowOnce}, bob, op.QuestionAllowed},
			{protocol.ChatQuestion{Reason: protocol.CancelledDecided, Decision: protocol.AllowAlways}, bob, op.QuestionAllowed},
			{protocol.ChatQuestion{Reason: protocol.CancelledDecided, Decision: protocol.Deny}, alice, op.QuestionDenied},
			{protocol.ChatQuestion{Reason: protocol.CancelledTimeout}, "", op.QuestionTimeout},
			{protocol.ChatQuestion{Reason: protocol.CancelledWith}, "", op.QuestionWithdrawn},
		} {
			c.end.RequestID = "apr_1"
			r.plays("c1", ends(c.end, c.by))
			if e := r.latest(); e.Type != "answered" || e.RequestID != "apr_1" || e.Outcome != c.want || e.By != c.by {
				t.Errorf("%+v: %+v", c.end, e)
			}
		}
	})
}

// Nobody can answer what a run asks once it is stopped or over: that is said before.
func TestQuestionsEnd(t *testing.T) {
	in(t, func(r *rig) {
		r.sends(1, "one")
		r.plays("c1", asks("apr_1", "Bash", `{"command":"x"}`))
		r.plays("c1", asks("apr_2", "Bash", `{"command":"y"}`))
		r.plays("c1", ends(protocol.ChatQuestion{RequestID: "apr_1", Reason: protocol.CancelledDecided, Decision: protocol.Deny}, bob))
		r.stops(1)
		r.plays("c1", ends(protocol.ChatQuestion{RequestID: "apr_2", Reason: protocol.CancelledWith}, "")) // what the chat says then
		r.shows(1, "user:one | agent_start | question:x | question:y | answered | answered | agent_error:Stopped by user")
		r.sends(1, "two")
		r.plays("c1", asks("apr_3", "Bash", `{"command":"z"}`))
		r.plays("c1", done)
		_, answer := r.polls(0, 1)
		last := answer.Entries[len(answer.Entries)-2]
		if last.Type != "answered" || last.RequestID != "apr_3" || last.Outcome != op.QuestionWithdrawn {
			t.Errorf("%+v", last)
		}
	})
}

// A person sees all that she allows: nothing is hidden behind the end of a line.
func TestQuestionsAreWhole(t *testing.T) {
	long := strings.Repeat("true; ", 100) + "rm -r /"
	for input, want := range map[string]string{
		`{"command":"` + long + `"}`:                   long,
		`{"command":"a\n b","description":"harmless"}`: "a\n b",
		`{"command":"ls","run_in_background":true}`:    "{\n  \"command\": \"ls\",\n  \"run_in_background\": true\n}",
		`{"file_path":"/x","content":"y"}`:             "{\n  \"file_path\": \"/x\",\n  \"content\": \"y\"\n}",
		`{"command":["ls"]}`:                           "{\n  \"command\": [\n    \"ls\"\n  ]\n}",
		`{"description":"harmless"}`:                   "{\n  \"description\": \"harmless\"\n}",
		`"x"`:                                          `"x"`,
		``:                                             "",
	} {
		e := question(protocol.ChatEvent{ChatQuestion: protocol.ChatQuestion{Input: []byte(input)}})
		if e.Input != want || e.Cut {
			t.Errorf("%.60s: %q, %t", input, e.Input, e.Cut)
		}
	}
	e := question(protocol.ChatEvent{ChatQuestion: protocol.ChatQuestion{Input: []byte(`{"command":"` + strings.Repeat("é", maxText) + `"}`)}})
	if !e.Cut || len(e.Input) > maxText || !utf8.ValidString(e.Input) {
		t.Errorf("%d bytes, cut: %t", len(e.Input), e.Cut)
	}
}
