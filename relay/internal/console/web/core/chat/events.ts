// What a chat socket brings and takes, as Go's package protocol has it: events of a
// conversation, which have a number, and frames of the relay itself, which have
// none.

export interface From {
  userId: string;
  name?: string;
}

export interface Image {
  name?: string;
  data: string; // a data URL, or the URL of an asset
  size?: number;
  mimeType?: string;
}

interface Event<K extends string> {
  kind: K;
  id: string;
  sessionId: string; // of the conversation
  timestamp: string; // ISO 8601
  provider: string;
  seq?: number; // absent in history
}

export interface Text extends Event<'text'> {
  role: string;
  content: string;
  images?: Image[];
  from?: From;
  commandId?: string;
  clientMessageId?: string;
}

export interface Delta extends Event<'stream_delta'> {
  content: string;
}

export type StreamEnd = Event<'stream_end'>;

export interface Thinking extends Event<'thinking'> {
  content: string;
}

export interface ToolOutput {
  content: string;
  isError: boolean;
}

export interface ToolUse extends Event<'tool_use'> {
  toolName: string;
  toolInput?: unknown;
  toolId: string;
  toolResult?: ToolOutput;
  parentToolUseId?: string;
}

export interface ToolResult extends Event<'tool_result'> {
  toolId: string;
  content: string;
  isError?: boolean;
}

export interface Failure extends Event<'error'> {
  content: string;
}

export interface TokenBudget {
  used: number;
  total?: number;
}

export interface Status extends Event<'status'> {
  text?: string;
  tokens?: number;
  tokenBudget?: TokenBudget;
}

export interface Question extends Event<'permission_request'> {
  requestId: string;
  toolName: string;
  input?: unknown;
  revision?: number;
  expiresAt?: string; // ISO 8601; absent: never
}

export interface Withdrawal extends Event<'permission_cancelled'> {
  requestId: string;
  reason: string; // timeout, cancelled, decided
  from?: From; // who has decided
  decision?: string; // allow_once, allow_always, deny, deny_always
}

export interface Complete extends Event<'complete'> {
  exitCode: number;
  success: boolean;
  aborted: boolean;
}

export type ChatEvent = Text | Delta | StreamEnd | Thinking | ToolUse | ToolResult | Failure | Status | Question | Withdrawal | Complete;

// A Pending is a question that was open when the socket subscribed.
export interface Pending {
  requestId: string;
  toolName: string;
  input: unknown;
  revision?: number;
  receivedAt: string;
  expiresAt?: string;
}

export interface Subscribed {
  kind: 'chat_subscribed';
  sessionId: string;
  isProcessing: boolean;
  lastSeq: number;
  firstSeq?: number;
  epoch?: string;
  gap?: boolean; // events are missing: read the history again
  pendingPermissions: Pending[];
}

export interface ChatRefusal {
  kind: 'protocol_error';
  code: string;
  error: string;
  sessionId: string | null;
  clientMessageId?: string; // of the message that is refused
}

export interface ChatControl {
  kind: 'control_state';
  sessionId: string;
  controller: string; // '' when free
  requests: string[];
  state: 'free' | 'held' | 'grace';
  ms_left?: number;
}

export interface ChatViewer {
  user_id: string;
  name?: string;
}

export interface ChatPresence {
  kind: 'presence';
  sessionId: string;
  count: number;
  viewers: ChatViewer[];
}

export interface RunStateFrame {
  kind: 'run_state';
  sessionId: string;
  state: 'idle' | 'running' | 'aborting';
  commandId?: string;
  terminal?: string; // where the conversation goes on
}

export interface SessionUpserted {
  kind: 'session_upserted';
  sessionId: string;
  provider: string;
  session: { id: string; summary: string; lastActivity: string };
  project: { projectId: string; path: string; displayName: string } | null;
}

export interface ChatMoved {
  kind: 'moved';
  origin: string;
}

export type RelayFrame = Subscribed | ChatRefusal | ChatControl | ChatPresence | RunStateFrame | SessionUpserted | ChatMoved;
export type ChatFrame = ChatEvent | RelayFrame;

const kinds = new Set([
  'text', 'stream_delta', 'stream_end', 'thinking', 'tool_use', 'tool_result', 'error', 'status', 'permission_request',
  'permission_cancelled', 'complete', 'chat_subscribed', 'protocol_error', 'control_state', 'presence', 'run_state',
  'session_upserted', 'moved',
]);

// parseFrame reads a frame; undefined for one that this version doesn't know.
export function parseFrame(text: string): ChatFrame | undefined {
  const frame = JSON.parse(text) as { kind?: unknown } | null;
  return typeof frame?.kind === 'string' && kinds.has(frame.kind) ? (frame as ChatFrame) : undefined;
}

// isEvent reports whether a frame is an event of a conversation.
export function isEvent(frame: ChatFrame): frame is ChatEvent {
  return 'seq' in frame;
}
