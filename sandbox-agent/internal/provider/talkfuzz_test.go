package provider

import (
	"bytes"
	"testing"
)

// FuzzTalks has every provider's talk take whatever a program may print, with
// people who send, answer and abort in between. Lines that begin with "!" are
// what people do.
func FuzzTalks(f *testing.F) {
	for _, seed := range []string{
		"!s\n{\"id\":1,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{\"loadSession\":true}}}\n{\"id\":2,\"result\":{\"sessionId\":\"s\",\"thread\":{\"id\":\"s\"},\"modes\":{\"currentModeId\":\"default\"}}}\n" +
			"{\"id\":3,\"result\":{\"turn\":{\"id\":\"t\"}}}\n" +
			"{\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"a\"}}}}\n" +
			"{\"method\":\"item/agentMessage/delta\",\"params\":{\"threadId\":\"s\",\"turnId\":\"t\",\"itemId\":\"i\",\"delta\":\"a\"}}\n" +
			"{\"method\":\"item/started\",\"params\":{\"threadId\":\"s\",\"turnId\":\"t\",\"item\":{\"type\":\"commandExecution\",\"id\":\"c\",\"command\":\"/bin/bash -lc 'a b'\"}}}\n" +
			"{\"id\":0,\"method\":\"item/commandExecution/requestApproval\",\"params\":{\"command\":\"x\"}}\n!y0\n" +
			"{\"id\":5,\"method\":\"session/request_permission\",\"params\":{\"toolCall\":{\"toolCallId\":\"c\"},\"options\":[{\"optionId\":\"o\",\"kind\":\"allow_once\"}]}}\n!n5\n!a\n" +
			"{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"s\",\"turn\":{\"id\":\"t\",\"status\":\"interrupted\"}}}\n{\"id\":3,\"result\":{\"stopReason\":\"cancelled\"}}\n!s\n!e",
		"!s\n{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\"}\n{\"type\":\"assistant\",\"timestamp_ms\":1,\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}}\n" +
			"{\"type\":\"tool_call\",\"subtype\":\"started\",\"call_id\":\"c\",\"tool_call\":{\"shellToolCall\":{\"args\":{\"command\":\"ls\"}}}}\n" +
			"{\"type\":\"tool_call\",\"subtype\":\"completed\",\"call_id\":\"c\",\"tool_call\":{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}}\n{\"type\":\"result\",\"is_error\":true}",
		"!s\n{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"no\"}}\nnot JSON\n!e",
		"!r\n!s\n{\"id\":1,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{\"sessionCapabilities\":{\"resume\":{}}}}}\n{\"id\":2,\"result\":{}}\n!a\n!s",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range All(Options{})[1:] {
			s := Start{Dir: "/w"}
			if bytes.HasPrefix(data, []byte("!r\n")) {
				s.Native = "n"
			}
			c := check(t, p, s)
			c.begin()
			for line := range bytes.SplitSeq(data, []byte("\n")) {
				c.step(line)
			}
			if !c.over {
				c.end(3, "")
			}
		}
	})
}

// step does what a line of the fuzzer's says.
func (c *checked) step(line []byte) {
	switch {
	case c.over:
	case len(line) < 2 || line[0] != '!':
		c.take(c.talk.Line(line))
	case line[1] == 's':
		c.send(Turn{ID: "11111111-2222-4333-8444-555555555555", Content: string(line[2:])})
	case line[1] == 'y' || line[1] == 'n':
		if q := string(line[2:]); c.open[q] {
			c.answer(q, Answer{Allow: line[1] == 'y'})
		} else {
			c.take(c.talk.Answer(q, Answer{Allow: true}))
		}
	case line[1] == 'a':
		c.take(c.talk.Abort())
	case line[1] == 'e':
		c.end(0, "last words")
	}
}

// FuzzUnwrapped: a script in quotes is what a shell would run.
func FuzzUnwrapped(f *testing.F) {
	for _, seed := range []string{"/bin/bash -lc 'a '\"'\"'b'\"'\"''", "bash -c \"x \\$y\"", "/bin/sh -c a\\ b", "sh -c $x", "ls"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) {
		if got := unwrapped(command); len(got) > len(command) {
			t.Errorf("%q from %q", got, command)
		}
	})
}
