package provider

import "github.com/fairlead/fairlead/protocol"

// Options configure the providers.
type Options struct {
	// ContextWindow is the size of the context of claude's models in tokens, where
	// somebody has set it (seed 002); 0: what claude says, or else a default.
	ContextWindow int64
}

// All returns every provider, in the order in which clients list them.
func All(o Options) []Provider {
	return []Provider{
		claude{window: o.ContextWindow}, cursor{}, codex{}, gemini{}, opencode{},
	}
}

// Continue returns what to start in a terminal of folder dir for people who go on
// with what p knows as native. It fails with KindInvalid for what is no id: what a
// program has said of its session becomes one of its arguments.
func Continue(p Provider, native, dir string) (Command, error) {
	if native == "" || !plainArgument(native) {
		return Command{}, protocol.Errorf(protocol.KindInvalid, "what %s calls this session is no id", p.Name())
	}
	return p.Command(Start{Native: native, Dir: dir, InTerminal: true}), nil
}

// ByName returns one of providers by its name.
func ByName(providers []Provider, name string) (Provider, bool) {
	for _, p := range providers {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}
