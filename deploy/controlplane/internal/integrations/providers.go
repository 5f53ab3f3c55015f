package integrations

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/policy"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/protocol"
)

// providers are those that are set up, by name.
type providers map[string]*oauth.Provider

func loadProviders(file string, clk clock.Clock) (providers, error) {
	loaded, err := oauth.Load(file, clk.Now)
	if err != nil {
		return nil, fmt.Errorf("integrations: %w", err)
	}
	return loaded, nil
}

func (p providers) close() {
	for _, one := range p {
		one.Close()
	}
}

// find returns a provider that is set up: KindNotFound for one that isn't known
// at all, KindUnavailable for one that nobody has set up here.
func (p providers) find(name string) (*oauth.Provider, error) {
	if !slices.Contains(oauth.Providers(), name) {
		return nil, protocol.Errorf(protocol.KindNotFound, "no such provider")
	}
	if p[name] == nil {
		return nil, protocol.Errorf(protocol.KindUnavailable, "%s is not set up here: the administrator names it in the file of --integrations", name)
	}
	return p[name], nil
}

// actionsOf lists the actions of a provider whose accounts can be attached.
func actionsOf(name string) (actions []policy.Action, known bool) {
	for _, a := range provider.Actions(name) {
		actions = append(actions, policy.Action{Name: a.Name, ReadOnly: a.ReadOnly})
	}
	return actions, len(actions) > 0
}
