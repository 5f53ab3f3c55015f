package provider

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestSaid(t *testing.T) {
	next := func(turn, role, text string) string {
		var s Said
		s.Begin(turn)
		return s.Next(protocol.ChatText, role, text)
	}
	same := next("t", "assistant", "hello\n")
	if next("t", "assistant", "hello") != same {
		t.Error("white space around a text counts")
	}
	for _, other := range []string{next("u", "assistant", "hello"), next("t", "user", "hello"), next("t", "assistant", "hallo")} {
		if other == same {
			t.Error("two different things have one id")
		}
	}
	var s Said
	s.Begin("t")
	ids := map[string]bool{}
	for range 3 {
		ids[s.Next(protocol.ChatText, "assistant", "again")] = true
		for i := range 5 {
			s.Next(protocol.ChatText, "assistant", string(rune('a'+i)))
		}
	}
	if len(ids) != 3 {
		t.Errorf("%d ids for three equal texts", len(ids))
	}
	fork := s
	if fork.Next(protocol.ChatText, "assistant", "again") != s.Next(protocol.ChatText, "assistant", "again") {
		t.Error("a copy goes on otherwise")
	}
}

func TestHiddenText(t *testing.T) {
	for text, hidden := range map[string]bool{
		"<system-reminder>x": true, "\nCaveat: The messages below": true, "[Request interrupted by user for tool use]": true,
		"hello": false, "": false, "what is a <system-reminder>?": false,
	} {
		if HiddenText(text) != hidden {
			t.Errorf("%q hidden: %v", text, !hidden)
		}
	}
}
