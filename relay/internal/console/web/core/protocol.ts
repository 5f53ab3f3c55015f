// The JSON of the browser socket and of REST, as Go's package protocol defines
// it. Members that no client uses are left out.

export interface ControlState {
  type: 'control_state';
  controller: string; // '' when nobody has control
  requests: string[];
  term: number;
  grace_ms?: number;
  agent_state: string; // 'running', 'waiting', 'paused' or 'stopped'
  agent?: string; // its name
  last_turn?: Turn; // the last one that a coding agent finished
  you: string;
  can_control: boolean;
  can_take_back?: boolean; // you own the session
}

export interface Turn {
  agent: string;
  lastMessage: string; // the end of what it said
  reason: string; // 'complete', 'interrupted', 'error' or 'unknown'
  timestamp: number; // Unix milliseconds
}

export interface Attached {
  type: 'attached';
  epoch: string;
  offset: number; // of the next byte
  head: number; // bytes before it are history
  cols: number;
  rows: number;
  mode: string; // 'resume', 'keyframe' or 'gap'
  keyframe_bytes: number;
}

export interface Resync {
  type: 'resync';
  epoch: string;
  offset: number;
  head: number;
  cols: number;
  rows: number;
  keyframe_bytes: number;
}

export interface Viewer {
  user_id: string;
  name: string;
  sockets: number;
  can_control: boolean;
}

export interface Closed {
  type: 'pty_closed';
  exit_code: number;
  signal?: string;
  offset: number;
}

export type ServerMessage =
  | ControlState
  | { type: 'control_taken'; controller: string; term: number }
  | { type: 'control_requested'; from: string; requests: string[] }
  | { type: 'control_granted'; from: string; to: string; controller: string; term: number; reason?: string } // 'owner' or 'idle'
  | { type: 'control_revoked'; from: string; controller: string }
  | { type: 'control_expired'; from: string; controller: string }
  | Attached
  | Resync
  | { type: 'leading'; leads: boolean } // this window gives the size
  | { type: 'resized'; offset: number; cols: number; rows: number }
  | { type: 'presence'; count: number; viewers: Viewer[] }
  | Closed
  | { type: 'input_refused'; reason: string; seq?: number }
  | { type: 'input_ack'; seq: number }
  | { type: 'moved'; origin: string }
  | { type: 'recording'; id: string } // '' when not recorded
  | { type: 'shared'; with: string } // id of a terminal, 'session' or 'none'
  | { type: 'agent_state'; agent_state: string; agent: string }
  | { type: 'output_held'; held: boolean }
  | ({ type: 'agent_stopped' } & Turn)
  | { type: 'tools_changed'; oldCount: number; newCount: number; timestamp: number }
  | { type: 'error'; name: string; message: string }
  | { type: 'waiting'; reason: string }
  | { type: 'pong' }
  | { type: 'terminals_changed'; timestamp: number }
  | { type: 'reauthed'; expires_at: number };

export type ClientMessage =
  | { type: 'resize'; cols: number; rows: number }
  | { type: 'request_control' | 'take_control' | 'take_back' | 'cancel_request' | 'revoke_control' | 'lead' | 'ping' }
  | { type: 'grant_control'; to: string }
  | { type: 'reauth'; grant: string }
  | { type: 'ack'; offset: number };

const known = new Set<string>([
  'control_state', 'control_taken', 'control_requested', 'control_granted', 'control_revoked',
  'control_expired', 'attached', 'resync', 'resized', 'presence', 'pty_closed', 'input_refused',
  'error', 'waiting', 'reauthed', 'input_ack', 'moved', 'recording', 'leading', 'shared',
  'agent_state', 'output_held', 'agent_stopped', 'tools_changed', 'pong', 'terminals_changed',
]);

// decode returns the message in a text frame, or undefined for one that a
// newer relay knows and this client doesn't. It trusts the relay with the
// members.
export function decode(text: string): ServerMessage | undefined {
  try {
    const message: unknown = JSON.parse(text);
    if (typeof message === 'object' && message !== null && 'type' in message && known.has(String(message.type))) {
      return message as ServerMessage;
    }
  } catch {
    // Not JSON: as unknown as an unknown type.
  }
  return undefined;
}

// closedToOthers is whom a terminal is shared with that its own programs alone
// use.
export const closedToOthers = 'none';

// subprotocol is what a client offers that counts what it shows and types.
export const subprotocol = 'terminal.v2';

// The most input that fits into one frame on its way to the sandbox.
export const maxInputBytes = 16_298;

// momentary says that input which was refused for this reason is to be sent again.
export const momentary = (reason: string): boolean => reason === 'waiting' || reason === 'busy';

// freeTerm is the term of what is typed when nobody has control any more, after
// term: it takes the terminal. On the wire that is term with its top bit set.
export const freeTerm = (term: number): number => -1 - term;

// encodeInput is a binary frame: sequence and term, 8 bytes each, then the input.
export function encodeInput(seq: number, term: number, bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(16 + bytes.length);
  const view = new DataView(frame.buffer);
  view.setBigUint64(0, BigInt(seq));
  view.setBigUint64(8, term < 0 ? BigInt(-1 - term) | (1n << 63n) : BigInt(term));
  frame.set(bytes, 16);
  return frame;
}

export interface SessionInfo {
  id: string;
  dashboard: string;
  sandbox: string;
  capabilities: string[];
}

export interface Person {
  id: string;
  name: string;
}

export interface Me {
  user: Person;
  sessions: SessionInfo[];
}

export interface TerminalInfo {
  id: string;
  creator_id?: string;
  command?: string;
  cols: number;
  rows: number;
  created_at: number; // Unix milliseconds
  egress?: string; // 'advisory' or 'enforced'; absent: it connects to any host
  dir?: string; // where a shell of a web client began, below the workspace
  waiting?: boolean; // its program starts with the first byte that is typed
  exited?: { exit_code?: number; signal?: string } | null;
}

// AgentStart says which coding agent to put in front of a terminal.
export interface AgentStart {
  name: string;
  command?: string; // of any program; else the known one of that name
}

// LogPart is output of one epoch: the bytes from (inclusive) to (exclusive).
export interface LogPart {
  epoch: string;
  from: number;
  to: number;
}

// A plugin is a program in a terminal that has given its port a name.
export interface PluginInfo {
  name: string;
  pty_id: string;
  port: number;
}

export interface RecordingInfo {
  id: string;
  pty_id: string;
  command?: string;
  cols: number;
  rows: number;
  started_at: number; // Unix milliseconds
  ended_at?: number; // absent while it runs
  bytes: number;
  note?: string; // why it ended early
}
