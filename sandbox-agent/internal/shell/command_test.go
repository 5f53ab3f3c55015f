package shell

import "testing"

// Commands are run in shells in package terminal.

func TestLastLines(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"ab\ncd\n", "cd\n"}, {"abcdefg\n", "efg\n"}, {"x\nabé", "bé"}, {"aéé", "é"}, {"", ""},
	} {
		n := 4
		if tt.want == "é" || tt.want == "bé" {
			n = 3
		}
		if got := LastLines([]byte(tt.text), n); string(got) != tt.want {
			t.Errorf("the end of %q is %q, want %q", tt.text, got, tt.want)
		}
	}
}
