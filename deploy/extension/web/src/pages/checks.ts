// What is asked of a message before anything is done, in this order, each with its
// answer. Everything that has an effect comes from the signed payload; what stands
// beside it may only say the same. Pure, but for the signature.

import { type Command, open, timely } from './command.ts';
import { readObject, stringOf } from './json.ts';
import { decode } from './jws.ts';
import { methods } from './methods.ts';
import { auth, malformed, noTarget, Refusal } from './refusal.ts';
import { type Allowed, siteOf } from './sites.ts';

const longestURL = 64 << 10;
const deepestParams = 64;

// A sender as Chrome tells it.
export interface Sender {
  id?: string | undefined; // of an extension
  url?: string | undefined;
  origin?: string | undefined;
  frameId?: number | undefined;
  documentLifecycle?: string | undefined;
  tab?: unknown;
}

// isOurPage says that a message comes from the page of a relay itself: a frame in
// it, sandboxed, would have the address, and not the origin.
export function isOurPage(sender: Sender, origins: readonly string[]): boolean {
  const { id, url = '', origin = '', frameId, documentLifecycle, tab } = sender;
  return id === undefined && tab !== undefined && origins.includes(origin) && url.startsWith(`${origin}/`) && frameId === 0 && documentLifecycle === 'active';
}

// A request is a message of the page: what it says of the command is a hint, and
// must be true.
export interface Request {
  requestId: string;
  commandId: string;
  traceId: string;
  target: Record<string, unknown>;
  jws: string;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

// isText says that a value is a text as short as ids are.
export const isText = (value: unknown): value is string => typeof value === 'string' && value !== '' && value.length <= 128;

export const isDriver = (message: unknown): message is Record<string, unknown> => isObject(message) && message.type === 'driver';

// readRequest reads an invocation, or throws.
export function readRequest(message: Record<string, unknown>): Request {
  const { action, requestId, commandId, traceId, target, jws } = message;
  if (action !== 'invoke') throw malformed('the action is not known');
  if (!isText(requestId) || !isText(commandId) || !isText(traceId)) throw malformed('requestId, commandId and traceId must be short texts');
  if (!isObject(target) || !Number.isSafeInteger(target.tabId) || (target.tabId as number) <= 0) throw malformed('target must name a tab');
  if (typeof jws !== 'string') throw malformed('jws must be a text');
  return { requestId, commandId, traceId, target, jws };
}

// An Order is a command that has passed: one call on one tab.
export interface Order extends Command {
  method: string;
  params: Record<string, unknown>;
  reply: { url: string; callbackToken: string };
}

export interface Here {
  extensionId: string;
  browserId: string;
  tabs: 'shared' | 'all';
  origins: readonly string[]; // of the relays
  allowed: Allowed;
  stopped: boolean;
  verify: (token: ReturnType<typeof decode>) => Promise<void>;
  now: () => number;
}

// check goes through all of it up to whether the id was seen before, or throws the
// Refusal that is its answer.
export async function check(request: Request, here: Here): Promise<Order> {
  const token = decode(request.jws);
  await here.verify(token);
  const command = open(token.typ, token.payload);
  agree(request, command);
  isForUs(command, here);
  timely(command, here.now());
  const { reply } = command;
  if (reply === undefined || !here.origins.some((origin) => reply.url === `${origin}/control/callback`)) throw auth('the callback goes to somewhere else than our relays');
  if (!/^[\x21-\x7e]{1,512}$/.test(reply.callbackToken)) throw auth('the callback has no token');
  const { method, params } = call(command, here.allowed);
  if (here.stopped) throw noTarget('the person has stopped all commands in this browser');
  return { ...command, method, params, reply };
}

// agree compares what stands outside with what is signed.
function agree(request: Request, { commandId, traceId, target }: Command): void {
  if (request.commandId !== commandId || request.traceId !== traceId) throw auth('the message is about another command than the one that is signed');
  for (const [name, value] of Object.entries(request.target)) {
    const signed = Object.hasOwn(target, name) ? target[name as keyof typeof target] : undefined;
    if (value !== signed && !(value === undefined || (value === null && signed === ''))) throw auth('the message has another target than the one that is signed');
  }
}

function isForUs({ target }: Command, here: Here): void {
  if (target.extensionId !== '' && target.extensionId !== here.extensionId) throw noTarget('the command is for another extension');
  if (target.browserId !== '' && target.browserId !== here.browserId) throw noTarget('the command is for another browser');
  if (target.sandboxId !== '' || target.ptyId !== '') throw noTarget('the command is for a sandbox');
  if (target.sessionId === '' && here.tabs !== 'all') throw noTarget('the command names no session, and tabs are shared with sessions alone');
}

// call reads the operation: of the methods and members that are listed, no others.
function call({ op }: Command, allowed: Allowed): { method: string; params: Record<string, unknown> } {
  if (stringOf(op.get('kind')) !== 'cdp.send') throw new Refusal('UnsupportedError', 'a browser does cdp.send alone');
  for (const name of op.keys()) if (name !== 'kind' && name !== 'method' && name !== 'params') throw malformed('the operation has a member of no meaning here');
  const method = stringOf(op.get('method'));
  if (method === undefined) throw malformed('the operation needs a method');
  const allowance = methods.get(method);
  if (allowance === undefined) throw auth('the method is not allowed on a browser');
  const text = op.get('params') ?? 'null';
  const members = text === 'null' ? new Map<string, string>() : readObject(text);
  if (members === undefined || depth(text) > deepestParams) throw malformed('params must be an object, and not too deep');
  for (const name of members.keys()) if (!allowance.members.includes(name)) throw auth(`${method} may not be called with such a member`);
  const params = text === 'null' ? {} : (JSON.parse(text) as Record<string, unknown>);
  if (allowance.url !== undefined) mayOpen(params[allowance.url], allowed);
  return { method, params };
}

// mayOpen throws unless a value is the address of a site that tabs may be at.
function mayOpen(address: unknown, allowed: Allowed): void {
  if (typeof address !== 'string') throw malformed('the method needs a URL');
  if (address.length > longestURL || siteOf(address) === undefined) throw auth('no tab is sent to anything else than http and https');
  if (!allowed(address)) throw auth('no tab is sent there: it is ours');
}

function depth(text: string): number {
  let deepest = 0;
  let now = 0;
  for (const c of text.replace(/"(?:[^"\\]|\\.)*"/g, '')) {
    if (c === '{' || c === '[') deepest = Math.max(deepest, ++now);
    if (c === '}' || c === ']') now--;
  }
  return deepest;
}
