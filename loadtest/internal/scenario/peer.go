package scenario

import (
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/peer"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

// A peerOption says which peer is measured beside fairlead, if any.
type peerOption struct {
	file, name string
	*peer.Peer // nil without
}

// declarePeer declares the flag.
func declarePeer(c *program.Command, o *peerOption, name string) {
	o.name = name
	c.String(&o.file, "peer", "", "`file` that describes a "+name+" to measure beside, in the same blocks;\n"+
		"loadtest/peers/"+name+".sh COMMAND sets it for COMMAND: see loadtest/peers/README.md")
}

// load reads the file.
func (o *peerOption) load() (err error) {
	if o.file != "" {
		o.Peer, err = peer.Load(o.file, o.name)
	}
	return err
}

// besidePeer records a figure of a block divided by the peer's of the same name,
// if there is one.
func besidePeer(e *stage.Env, figure string, block int) {
	own, theirs := e.Out.Blocks(figure), e.Out.Blocks("peer_"+figure)
	if n, m := len(own), len(theirs); n > 0 && m > 0 {
		e.Out.BlockAt(figure+"_peer_ratio", block, own[n-1]/theirs[m-1])
	}
}
