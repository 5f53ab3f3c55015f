package scenario

import (
	"github.com/fairlead/fairlead/loadtest/internal/agents"
	"github.com/fairlead/fairlead/loadtest/internal/crowd"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
)

// RegisterKinds makes the kinds of generators known that scenarios use. A
// generator process calls it before anything else.
func RegisterKinds() {
	generator.Register(agents.Kind, agents.New)
	generator.Register(crowd.Kind, crowd.New)
	generator.Register(bulkKind, newBulk)
	generator.Register(callsKind, newCaller)
}
