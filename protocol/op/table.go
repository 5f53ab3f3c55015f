package op

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// Specs are the operations, by family.
var Specs = slices.Concat(sessions, terminals, agents, authority, browser, environment, approvals, chats, sidebars, panels, syncs)

var byKind = index(Specs)

func index(specs []Spec) map[string]Spec {
	m := make(map[string]Spec, len(specs))
	for _, s := range specs {
		m[s.Kind] = s
	}
	return m
}

// Lookup returns the operation of a kind, false for an unknown one.
func Lookup(kind string) (Spec, bool) {
	s, known := byKind[kind]
	return s, known
}

// Needs returns the capability that is required for a kind, "" for an unknown
// kind.
func Needs(kind string) protocol.Capability { return byKind[kind].Needs }

// Names returns the JSON names of all members that an op can have, unordered.
func Names() []string {
	names := []string{"kind"}
	for _, s := range Specs {
		names = append(names, protocol.MemberNames(s.Body)...)
		if s.Asked != nil {
			names = append(names, protocol.MemberNames(s.Asked)...)
		}
	}
	return names
}
