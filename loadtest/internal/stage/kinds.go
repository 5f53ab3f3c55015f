package stage

import (
	"github.com/fairlead/fairlead/loadtest/internal/agents"
	"github.com/fairlead/fairlead/loadtest/internal/bulk"
	"github.com/fairlead/fairlead/loadtest/internal/calls"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
)

// RegisterKinds makes the kinds of generators known that scenarios use. A
// generator process calls it before anything else.
func RegisterKinds() {
	generator.Register(agents.Kind, agents.New)
	generator.Register(viewers.Kind, viewers.New)
	generator.Register(bulk.Kind, bulk.New)
	generator.Register(calls.Kind, calls.New)
}
