// Package scenario says what loadtest can do to a deployment: each scenario
// makes one kind of load, and measures and verifies what comes of it.
package scenario

import "github.com/fairlead/fairlead/loadtest/internal/stage"

// All returns every scenario in the order of the table.
func All() []*stage.Scenario {
	return []*stage.Scenario{fanout, highestRate, terminals, joinStorm, slowViewers, failover, outage, reconnectStorm, churn, tunnelThroughput, echo, flood, commands, pageCommands, files, syncing, chat, soak}
}

// Find returns the scenario of that name, nil if there is none.
func Find(name string) *stage.Scenario {
	for _, s := range All() {
		if s.Name == name {
			return s
		}
	}
	return nil
}
