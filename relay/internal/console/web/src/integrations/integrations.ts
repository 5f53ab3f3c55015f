// Accounts at other services that people lend to the programs of a terminal, and
// under which rules. Pure.

import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';

export interface Account {
  id: string;
  provider: string;
  name: string; // its e-mail address or login name
  needs_reconnect?: boolean; // nothing can be done with it until it is connected again
}

export interface Mine {
  providers: { name: string; set_up: boolean }[];
  accounts: Account[];
}

// A Policy says what programs may do with an account. It may have other members
// than these, which the control plane knows.
export interface Policy {
  read_only?: boolean;
  [rule: string]: unknown;
}

export interface Attachment {
  session_id: string;
  pty_id: string;
  provider: string;
  account_id: string;
  account_name: string;
  account_user: string; // whose it is
  needs_reconnect?: boolean;
  policy?: Policy;
}

export const providerLabels: Readonly<Record<string, string>> = {
  gmail: 'Gmail',
  github: 'GitHub',
  google_drive: 'Google Drive',
  google_calendar: 'Google Calendar',
};

export const providerLabel = (provider: string): string => providerLabels[provider] ?? visible(provider);

export interface Member {
  user: string;
  name: string;
  role: string; // 'owner', 'editor' or 'viewer'
}

export interface Viewpoint {
  session: string;
  pty: string;
  you: string;
  members: Member[]; // of the dashboard
}

// A Row is what the panel says about one service.
export interface Row {
  provider: string;
  label: string;
  detail: string;
  tone: 'on' | 'off' | 'trouble';
  attachment: Attachment | null;
  attach: boolean; // an account can be attached
  change: boolean; // other rules can be given to it
  detach: boolean;
}

// mayChange reports whether somebody may change what is attached: the server
// decides, the page only asks for nothing that is refused.
export function mayChange(members: Member[], user: string): boolean {
  const role = members.find((member) => member.user === user)?.role;
  return role === 'owner' || role === 'editor';
}

// rowsOf are the services there are: those that are attached, and those that
// could be.
export function rowsOf(mine: Mine | null, attachments: Attachment[], at: Viewpoint): Row[] {
  const here = attachments.filter((a) => a.session_id === at.session && a.pty_id === at.pty);
  const configured = (mine?.providers ?? []).filter((p) => p.set_up).map((p) => p.name);
  const providers = [...new Set([...here.map((a) => a.provider), ...configured])];
  const may = mayChange(at.members, at.you);
  const nameOf = (user: string) => at.members.find((member) => member.user === user)?.name || 'somebody else';
  const known = Object.keys(providerLabels);
  const place = (provider: string) => (known.includes(provider) ? known.indexOf(provider) : known.length);
  providers.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
  return providers.flatMap((provider): Row[] => {
    const attachment = here.find((a) => a.provider === provider) ?? null;
    const row = { provider, label: providerLabel(provider), attachment, attach: false, change: false, detach: false };
    if (attachment === null) return may ? [{ ...row, detail: 'Not attached', tone: 'off', attach: true }] : [];
    const own = attachment.account_user === at.you;
    const change = may && own;
    return [{ ...row, detail: detailOf(attachment, own ? '' : nameOf(attachment.account_user)), tone: attachment.needs_reconnect === true ? 'trouble' : 'on', change, detach: may }];
  });
}

function detailOf({ account_name: account, policy, needs_reconnect: again }: Attachment, lender: string): string {
  const parts = [visible(account), lender === '' ? '' : `lent by ${visible(lender)}`, accessText(policy), again === true ? 'has to be connected again' : ''];
  return parts.filter((part) => part !== '').join(' · ');
}

const ruleMembers = (policy: Policy): string[] => Object.keys(policy).filter((member) => member !== 'read_only');

// accessText says in a few words what a policy allows.
export function accessText(policy: Policy | undefined): string {
  if (policy === undefined) return '';
  const access = policy.read_only === false ? 'full access' : 'read only';
  return ruleMembers(policy).length === 0 ? access : `${access}, with rules`;
}

export const readOnly: Policy = { read_only: true };

// withAccess is policy with another access, and the same rules.
export function withAccess(policy: Policy, full: boolean): Policy {
  return { ...policy, read_only: !full };
}

export const policyJSON = (policy: Policy): string => JSON.stringify(policy, null, 2);

// readPolicy reads what a person wrote; problem is '' if it is valid.
// What the rules mean is checked where they are kept.
export function readPolicy(text: string): { policy: Policy; problem: '' } | { policy: null; problem: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { policy: null, problem: `The rules are not JSON: ${messageOf(error)}` };
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { policy: null, problem: 'The rules must be an object: { … }' };
  const policy = value as Policy;
  if (policy.read_only !== undefined && typeof policy.read_only !== 'boolean') return { policy: null, problem: 'read_only must be true or false' };
  return { policy, problem: '' };
}

// consentAt is where a person agrees at a service, or undefined for an address
// that no person should be sent to.
export function consentAt(url: string): { href: string; host: string } | undefined {
  if (!URL.canParse(url)) return undefined;
  const { protocol, hostname, host, href, username, password } = new URL(url);
  const local = hostname === 'localhost' || hostname === '127.0.0.1' || hostname === '[::1]';
  if (username !== '' || password !== '' || (protocol !== 'https:' && !(protocol === 'http:' && local))) return undefined;
  return { href, host };
}
