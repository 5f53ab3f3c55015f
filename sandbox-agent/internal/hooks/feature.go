package hooks

import (
	"os"

	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// A Feature lets coding agents of terminals find our tools and run our hooks.
type Feature struct {
	Command string // the absolute path of sandbox-agent, as terminals' users reach it
}

var _ feature.Furnisher = Feature{}

// FurnishHome implements [feature.Furnisher].
func (f Feature) FurnishHome(home feature.Home) error {
	options := Options{Agent: home.Agent, Command: f.Command, ToolsOnly: home.ToolsOnly}
	if home.UID >= 0 {
		options.Chown = func(file *os.File) error { return file.Chown(home.UID, home.GID) }
	}
	return Wire(home.Root, options)
}
