package provider

// A Probe says how to learn whether an installed program has the protocol by
// which its provider speaks with it: with these arguments it exits with 0, and
// what it prints contains Prints. It asks nobody, needs no login and ends by
// itself.
type Probe struct {
	Args   []string
	Prints string
}

// A Prober is a provider of a program that has not always had the protocol.
// There is nothing to fall back to: without the protocol these programs take a
// prompt in their arguments and ask nobody for permission. A program that fails
// its probe is as good as none, and Command.Install says how to get a newer one.
type Prober interface{ Probe() Probe }

func (codex) Probe() Probe    { return Probe{Args: []string{"app-server", "--help"}} }
func (gemini) Probe() Probe   { return Probe{Args: []string{"--help"}, Prints: "--acp"} }
func (opencode) Probe() Probe { return Probe{Args: []string{"acp", "--help"}} }
func (cursor) Probe() Probe   { return Probe{Args: []string{"--help"}, Prints: "stream-json"} }
