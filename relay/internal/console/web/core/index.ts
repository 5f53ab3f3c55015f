// The public API: whatever is not exported here may change without notice.

export { backoff } from './backoff.ts';
export { pause, webPlatform, type Clock, type Platform } from './platform.ts';
export { closedToOthers, momentary, type AgentStart, type ClientMessage, type ControlState, type LogPart, type Me, type Person, type PluginInfo, type RecordingInfo, type ServerMessage, type SessionInfo, type TerminalInfo, type Turn, type Viewer } from './protocol.ts';

export { loginConfig, whoAmI, type Login } from './session/account.ts';
export { Unsettled } from './session/changes.ts';
export { ApiError, call, longMs, reasonOf, Unwanted, type Call } from './session/http.ts';
export { Origins, type OriginsOptions } from './session/origins.ts';
export { Session, type AgentVerb, type SessionCall, type SessionOptions } from './session/session.ts';

export { barred, hasEnded, initial, type Connection, type Phase, type Why } from './terminal/connection.ts';
export { agentHolder, atWork, controls, nobody, update, type Control } from './terminal/control.ts';
export { type Output } from './terminal/socket.ts';
export { Terminal, type Facts, type Obstacle, type Refusal, type TerminalHooks, type TerminalOptions } from './terminal/terminal.ts';

export { Follow, type FollowHooks } from './events/follow.ts';
export { type ServerEvent } from './events/sse.ts';
export { overdueMs, Stream, type StreamHooks } from './events/stream.ts';

export { Chats, type ChatHooks, type Reach } from './chat/chats.ts';
export { empty as emptyConversation, fold, read, subscribed, type Answered, type AskedState, type Conversation, type Item, type Said, type Used } from './chat/conversation.ts';
export { type ChatControl, type ChatEvent, type ChatFrame, type ChatPresence, type ChatRefusal, type From, type Image, isEvent, type Pending, type RunStateFrame, type SessionUpserted } from './chat/events.ts';
export { fits, type ChatOptions, type Outgoing } from './chat/outbox.ts';
export { Queue, type QueueHooks, type Store } from './chat/queue.ts';
