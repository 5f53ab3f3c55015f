package integrations

import "testing"

// TestMask: a token is masked in each way in which an answer may spell it.
func TestMask(t *testing.T) {
	const token = `ya29.a/b+c<d>&"e"`
	for _, tt := range []struct{ text, want string }{
		{"nothing", "nothing"},
		{"Bearer " + token + ".", "Bearer [token]."},
		{`{"a":"ya29.a/b+c\u003cd\u003e\u0026\"e\"","b":1}`, `{"a":"[token]","b":1}`},
		{"https://h/?t=ya29.a%2Fb%2Bc%3Cd%3E%26%22e%22", "https://h/?t=[token]"},
	} {
		if got := string(mask([]byte(tt.text), []string{token, "other"})); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}
