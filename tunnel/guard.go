package tunnel

import "github.com/fairlead/fairlead/tunnel/internal/mux"

// Objections returns the reasons that [Events.Objected] may get.
func Objections() []string { return words(mux.Reasons()) }

// Resets returns the reasons that [Events.Reset] may get.
func Resets() []string { return words(mux.ResetReasons()) }

func words[T ~string](reasons []T) []string {
	all := make([]string, len(reasons))
	for i, r := range reasons {
		all[i] = string(r)
	}
	return all
}

// wasReset notes that this end has reset a stream.
func (s *Session) wasReset(why mux.ResetReason) { s.events.reset(string(why)) }
