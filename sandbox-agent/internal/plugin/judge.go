package plugin

import (
	"errors"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
)

// How sockets end: labels of a metric.
const (
	endedClosed   = "closed"   // by a Close frame
	endedGone     = "gone"     // its client, relay or grant is gone
	endedInvalid  = "invalid"  // no name of a plugin
	endedMissing  = "missing"  // the plugin doesn't run
	endedUpstream = "upstream" // the plugin doesn't answer, or broke off
	endedFault    = "fault"    // its client broke the rules of WebSockets
	endedTooLarge = "too_large"
	endedTooMany  = "too_many" // it was refused
)

var endings = []string{
	endedClosed, endedGone, endedInvalid, endedMissing, endedUpstream, endedFault, endedTooLarge, endedTooMany,
}

// What Close frames of ours say.
var (
	invalidName   = wsframe.Closing{Code: protocol.KindInvalid.CloseCode(), Reason: pluginsocket.InvalidName}
	notRunning    = wsframe.Closing{Code: protocol.KindNotFound.CloseCode(), Reason: pluginsocket.NotRunning}
	upstreamError = wsframe.Closing{Code: protocol.KindUpstream.CloseCode(), Reason: pluginsocket.Upstream}
	goingAway     = wsframe.Closing{Code: wsframe.CodeGoingAway, Reason: "the client is gone"}
)

// errSilent stands for an end that didn't answer a Close frame in time.
var errSilent = errors.New("no answer to a close frame")

// An outcome is how one direction of a socket has ended.
type outcome struct {
	up      bool            // from the client to the plugin
	closing wsframe.Closing // that has passed; valid without err
	err     error
}

// A verdict is what follows from an outcome.
type verdict struct {
	client, plugin *wsframe.Closing // that they are told; nil: nothing
	wait           bool             // the other direction may still say something
	how            string
}

// judge says what follows when the first direction has ended.
func judge(o outcome) verdict {
	fault, isFault := errors.AsType[*wsframe.Fault](o.err)
	_, unwritten := errors.AsType[*wsframe.WriteError](o.err)
	switch {
	case o.err == nil:
		return verdict{wait: true, how: endedClosed}
	case isFault && fault.Code == wsframe.CodeTooBig:
		said := wsframe.Closing{Code: fault.Code, Reason: fault.Reason}
		return verdict{client: &said, plugin: &said, how: endedTooLarge}
	case isFault && o.up:
		return verdict{client: &wsframe.Closing{Code: fault.Code, Reason: fault.Reason}, plugin: &goingAway, how: endedFault}
	case isFault:
		return verdict{client: &upstreamError, plugin: &wsframe.Closing{Code: fault.Code, Reason: fault.Reason}, how: endedUpstream}
	case !unwritten && !o.up: // the plugin broke off
		return verdict{client: &upstreamError, how: endedUpstream}
	case unwritten && o.up: // what it has said before may still come
		return verdict{wait: true, how: endedUpstream}
	}
	return verdict{plugin: &goingAway, how: endedGone}
}

// settle says what follows when a direction that was waited for has ended, or
// hasn't: a Close frame that wasn't answered is answered with the same code.
func settle(first, second outcome) verdict {
	switch {
	case second.err == nil:
		return verdict{} // it has passed on
	case first.err != nil: // the plugin took nothing more, and said nothing
		return verdict{client: &upstreamError}
	case first.up:
		return verdict{client: &first.closing}
	}
	return verdict{plugin: &first.closing}
}
