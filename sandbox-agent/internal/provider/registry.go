package provider

// Options configure the providers.
type Options struct {
	// ContextWindow is the size of a model's context in tokens, where somebody has
	// set it; 0: what the program says, or else the provider's default.
	ContextWindow int64
}

// All returns every provider, in the order in which clients list them.
func All(o Options) []Provider {
	return []Provider{
		claude{window: o.ContextWindow}, cursor{}, codex{window: o.ContextWindow}, gemini{}, opencode{},
	}
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
