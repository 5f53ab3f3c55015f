package protocol

import "fmt"

// A StreamKind says what a stream carries after OPENED.
type StreamKind string

const (
	StreamTerminal StreamKind = "terminal"  // terminal frames, relay → agent
	StreamCommand  StreamKind = "command"   // one RESULT, relay → agent
	StreamRead     StreamKind = "read"      // DATA and RESIZED of a part of the log, relay → agent
	StreamHTTP     StreamKind = "http"      // HTTP/1.1, relay → agent
	StreamApproval StreamKind = "approval"  // approvals of a session, relay → agent
	StreamChat     StreamKind = "chat"      // events of a conversation, relay → agent
	StreamChatRead StreamKind = "chat_read" // CHAT of a part of a conversation's log, relay → agent
	StreamChatNews StreamKind = "chat_news" // news of a session's conversations, relay → agent
	StreamSync     StreamKind = "sync"      // one HTTP/1.1 request without a grant, relay → agent
	StreamConnect  StreamKind = "connect"   // opaque bytes to the control plane, agent → relay
)

var streamKinds = []StreamKind{StreamTerminal, StreamCommand, StreamRead, StreamHTTP, StreamApproval, StreamChat, StreamChatRead, StreamChatNews, StreamSync, StreamConnect}

// A FrameType says what a frame's payload is. Types from 0x80 may be skipped
// by a reader that doesn't know them; any other unknown type is an error.
type FrameType uint8

// Frames of the control stream.
const (
	FrameChallenge FrameType = 0x01 // JSON Challenge: relay → agent, first
	FrameHello     FrameType = 0x02 // JSON Hello: agent → relay, answers CHALLENGE
	FrameWelcome   FrameType = 0x03 // JSON Welcome: relay → agent, answers HELLO
	FrameRefused   FrameType = 0x04 // JSON Refused: answers HELLO or OPEN; nothing follows
	FramePing      FrameType = 0x05 // 8 B opaque: both ways
	FramePong      FrameType = 0x06 // 8 B echoed: both ways
	FrameRole      FrameType = 0x07 // JSON Role: agent → relay
	FrameLane      FrameType = 0x08 // JSON LaneRequest: relay → agent
	FrameGoAway    FrameType = 0x09 // JSON GoAway: both ways
	FrameStatus    FrameType = 0x80 // JSON Status: agent → relay
)

// Frames of every stream.
const (
	FrameOpen   FrameType = 0x10 // JSON Open: first frame of a stream
	FrameOpened FrameType = 0x11 // JSON Opened: answers OPEN
)

// Frames of a terminal stream.
const (
	FrameData         FrameType = 0x20 // 8 B offset, 1…n B output: agent → relay
	FrameResized      FrameType = 0x21 // JSON Resized: agent → relay
	FrameExited       FrameType = 0x22 // JSON Exited: agent → relay, last
	FrameReset        FrameType = 0x23 // JSON Reset: agent → relay
	FrameInput        FrameType = 0x24 // 8 B term, 8 B seq, 1 B n, n B client, 1…n B input: relay → agent
	FrameInputAck     FrameType = 0x25 // 8 B seq, 1…64 B client: agent → relay
	FrameInputRefused FrameType = 0x26 // JSON InputRefused: agent → relay
	FrameResize       FrameType = 0x27 // 8 B term, 2 B columns, 2 B rows: relay → agent
	FrameLease        FrameType = 0x28 // JSON LeaseProposal: relay → agent
	FrameLeased       FrameType = 0x29 // JSON Leased: agent → relay
	FrameGrant        FrameType = 0x2a // JSON GrantAdd: relay → agent
	FrameUngrant      FrameType = 0x2b // JSON GrantDrop: relay → agent
	FrameGranted      FrameType = 0x2c // JSON Granted: agent → relay
	FrameHolder       FrameType = 0x2d // JSON Holder: relay → agent
	FrameWantKeyframe FrameType = 0x40 // JSON WantKeyframe: relay → agent
	FrameKeyframe     FrameType = 0x41 // 8 B offset, 1 B history, 4 B left, 1…n B screen: agent → relay
	FramePace         FrameType = 0x42 // JSON Pace: relay → agent
	FrameRecording    FrameType = 0x43 // JSON Recording: agent → relay
	FrameAgent        FrameType = 0x44 // JSON AgentReport: agent → relay
	FrameHeld         FrameType = 0x45 // JSON Held: agent → relay
	FrameAgentTurn    FrameType = 0x46 // JSON AgentTurn: agent → relay
	FrameTools        FrameType = 0x47 // JSON ToolsChanged: agent → relay
	FrameShared       FrameType = 0x81 // JSON Shared: agent → relay
	FrameTerminals    FrameType = 0x82 // JSON TerminalsChanged: agent → relay
	FrameAudience     FrameType = 0x83 // JSON Audience: relay → agent
	FrameAddress      FrameType = 0x84 // JSON Address: agent → relay
)

// Frames of a command stream.
const (
	FrameResult FrameType = 0x30 // JSON Result: agent → relay, last
)

// Frames of an approval stream.
const (
	FrameApproval FrameType = 0x50 // JSON ApprovalEvent: agent → relay
)

// Frames of a conversation's streams. LEASE, LEASED, GRANT, UNGRANT, GRANTED and
// HOLDER are used as on a terminal stream.
const (
	FrameChat      FrameType = 0x60 // 8 B seq, 4 B left, 1 B n, n B origin, 1…m B event: agent → relay
	FrameChatState FrameType = 0x61 // JSON ChatState: agent → relay
	FrameChatReset FrameType = 0x62 // JSON ChatReset: agent → relay
	FrameChatNews  FrameType = 0x63 // JSON ChatNews: agent → relay
)

// frameTypes names every frame type; README.md's table is compared with it.
var frameTypes = map[FrameType]string{
	FrameChallenge: "CHALLENGE", FrameHello: "HELLO", FrameWelcome: "WELCOME",
	FrameRefused: "REFUSED", FramePing: "PING", FramePong: "PONG",
	FrameRole: "ROLE", FrameLane: "LANE", FrameGoAway: "GOAWAY", FrameStatus: "STATUS",
	FrameOpen: "OPEN", FrameOpened: "OPENED",
	FrameData: "DATA", FrameResized: "RESIZED", FrameExited: "EXITED",
	FrameReset: "RESET", FrameInput: "INPUT", FrameInputAck: "INPUT_ACK",
	FrameInputRefused: "INPUT_REFUSED", FrameResize: "RESIZE",
	FrameLease: "LEASE", FrameLeased: "LEASED", FrameGrant: "GRANT",
	FrameUngrant: "UNGRANT", FrameGranted: "GRANTED", FrameHolder: "HOLDER",
	FrameWantKeyframe: "WANT_KEYFRAME", FrameKeyframe: "KEYFRAME", FramePace: "PACE", FrameRecording: "RECORDING",
	FrameAgent: "AGENT", FrameHeld: "HELD", FrameAgentTurn: "AGENT_TURN", FrameTools: "TOOLS", FrameShared: "SHARED", FrameTerminals: "TERMINALS",
	FrameAudience: "AUDIENCE", FrameAddress: "ADDRESS",
	FrameResult: "RESULT", FrameApproval: "APPROVAL",
	FrameChat: "CHAT", FrameChatState: "CHAT_STATE", FrameChatReset: "CHAT_RESET", FrameChatNews: "CHAT_NEWS",
}

// codecs decode the frames, by type.
var codecs = [256]codec{
	FrameChallenge:    asJSON[Challenge]{},
	FrameHello:        asJSON[Hello]{},
	FrameWelcome:      asJSON[Welcome]{},
	FrameRefused:      asJSON[Refused]{},
	FramePing:         asBinary(decodePing),
	FramePong:         asBinary(decodePing),
	FrameRole:         asJSON[Role]{},
	FrameLane:         asJSON[LaneRequest]{},
	FrameGoAway:       asJSON[GoAway]{},
	FrameStatus:       asJSON[Status]{},
	FrameOpen:         asJSON[Open]{},
	FrameOpened:       asJSON[Opened]{},
	FrameData:         asBinary(decodeData),
	FrameResized:      asJSON[Resized]{},
	FrameExited:       asJSON[Exited]{},
	FrameReset:        asJSON[Reset]{},
	FrameInput:        asBinary(decodeInput),
	FrameInputAck:     asBinary(decodeInputAck),
	FrameInputRefused: asJSON[InputRefused]{},
	FrameResize:       asBinary(decodeResize),
	FrameLease:        asJSON[LeaseProposal]{},
	FrameLeased:       asJSON[Leased]{},
	FrameGrant:        asJSON[GrantAdd]{},
	FrameUngrant:      asJSON[GrantDrop]{},
	FrameGranted:      asJSON[Granted]{},
	FrameHolder:       asJSON[Holder]{},
	FrameWantKeyframe: asJSON[WantKeyframe]{},
	FrameKeyframe:     asBinary(decodeKeyframe),
	FramePace:         asJSON[Pace]{},
	FrameRecording:    asJSON[Recording]{},
	FrameAgent:        asJSON[AgentReport]{},
	FrameHeld:         asJSON[Held]{},
	FrameAgentTurn:    asJSON[AgentTurn]{},
	FrameTools:        asJSON[ToolsChanged]{},
	FrameShared:       asJSON[Shared]{},
	FrameTerminals:    asJSON[TerminalsChanged]{},
	FrameAudience:     asJSON[Audience]{},
	FrameAddress:      asJSON[Address]{},
	FrameResult:       asJSON[Result]{},
	FrameApproval:     asJSON[ApprovalEvent]{},
	FrameChat:         asBinary(decodeChat),
	FrameChatState:    asJSON[ChatState]{},
	FrameChatReset:    asJSON[ChatReset]{},
	FrameChatNews:     asJSON[ChatNews]{},
}

func (t FrameType) String() string {
	if name, ok := frameTypes[t]; ok {
		return name
	}
	return fmt.Sprintf("0x%02x", uint8(t))
}

// Skippable reports whether a reader that doesn't know t may ignore the frame.
func (t FrameType) Skippable() bool { return t&0x80 != 0 }
