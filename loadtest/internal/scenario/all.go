package scenario

// All returns every scenario in the order of the table.
func All() []*Scenario {
	return []*Scenario{fanout, highestRate, terminals, joinStorm, slowViewers, failover, outage, reconnectStorm, churn, tunnelThroughput, echo, flood, commands, pageCommands, files, syncing, chat, soak}
}

// Find returns the scenario of that name, nil if there is none.
func Find(name string) *Scenario {
	for _, s := range All() {
		if s.Name == name {
			return s
		}
	}
	return nil
}
