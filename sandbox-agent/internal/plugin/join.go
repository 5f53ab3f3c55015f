package plugin

import (
	"time"

	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
)

// closeTimeout is how long one end may take to answer the other's Close frame.
const closeTimeout = 5 * time.Second

// join carries frames between the ends until both directions are over, and returns
// how that came. Neither end gets anything that the other hasn't room for.
func join(client, plugin *end) (how string) {
	outcomes := make(chan outcome, 2)
	carry := func(from, to *end, up bool) { // join waits for both
		c := wsframe.Carrier{From: from.from, To: to, Rule: wsframe.Rule{Masked: to.masked, Most: pluginsocket.MaxMessage}}
		closing, err := c.Carry()
		outcomes <- outcome{up, closing, err}
	}
	go carry(client, plugin, true)
	go carry(plugin, client, false)
	first := <-outcomes
	v := judge(first)
	say(v, client, plugin)
	waiting := 1
	if v.wait {
		patience := time.NewTimer(closeTimeout)
		select {
		case second := <-outcomes:
			waiting = 0
			say(settle(first, second), client, plugin)
		case <-patience.C:
			say(settle(first, outcome{up: !first.up, err: errSilent}), client, plugin)
		}
		patience.Stop()
	}
	client.interrupt()
	plugin.interrupt()
	for range waiting {
		<-outcomes
	}
	client.conn.Close()
	plugin.leave()
	return v.how
}

// say tells the ends what a verdict says.
func say(v verdict, client, plugin *end) {
	if v.client != nil {
		client.tell(*v.client)
	}
	if v.plugin != nil {
		plugin.tell(*v.plugin)
	}
}
