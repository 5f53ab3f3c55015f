package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/loadtest/internal/stack"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

// TestFound10Crowd: as many people as the limits ask for share the viewers.
func TestFound10Crowd(t *testing.T) {
	target := &stack.Target{Users: map[string]stack.User{"alice": {Token: "a"}, "bob": {Token: "b"}, "carol": {Token: "c"}}}
	for i := 1; i <= 12; i++ {
		target.Users[fmt.Sprint("p", i)] = stack.User{Token: fmt.Sprint(i)}
	}
	who := func(target *stack.Target, o stage.Options, sockets int) (string, error) {
		env := &stage.Env{Target: target, Options: &o}
		people, err := env.Watchers(sockets)
		var tokens []string
		for _, u := range people {
			tokens = append(tokens, u.Token)
		}
		return strings.Join(tokens, " "), err
	}
	for _, tt := range []struct {
		o       stage.Options
		sockets int
		want    string
	}{
		{stage.Options{}, 1, "b"}, {stage.Options{}, 100, "b"}, {stage.Options{}, 101, "b c"}, {stage.Options{}, 1000, "b c 1 2 3 4 5 6 7 8"},
		{stage.Options{OwnGrants: true}, 41, "b c 1 2 3"},
	} {
		if got, err := who(target, tt.o, tt.sockets); err != nil || got != tt.want {
			t.Errorf("%d sockets: %q, %v; want %q", tt.sockets, got, err, tt.want)
		}
	}
	if _, err := who(target, stage.Options{}, 1401); err == nil || !strings.Contains(err.Error(), "--people 15") {
		t.Errorf("more than all can open: %v", err)
	}
	alone := &stack.Target{Users: map[string]stack.User{"alice": {Token: "a"}}}
	if got, err := who(alone, stage.Options{}, 1000); err != nil || got != "a" {
		t.Errorf("somebody alone: %q, %v", got, err)
	}
	for _, tt := range []struct{ viewers, terminals, want int }{{200, 0, 2}, {100, 0, 0}, {10, 16, 2}, {5000, 0, 50}, {0, 0, 0}} {
		if got := (&stage.Options{Viewers: tt.viewers, Terminals: tt.terminals}).People(); got != tt.want {
			t.Errorf("%+v: %d people", tt, got)
		}
	}
}
