// The dialog that lends an account to the programs of a terminal: which one, and
// what they may do with it.

import { ask } from '../ui/ask.ts';
import { byId, h, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import type { IntegrationsAPI } from './api.ts';
import { consentAt, policyJSON, providerLabel, readOnly, readPolicy, withAccess, type Account, type Attachment, type Mine, type Policy } from './integrations.ts';

// What is attached to which terminal.
export interface Attaching {
  pty: string;
  label: string; // of the terminal
  provider: string;
  attachment: Attachment | undefined; // as it is
  accounts: Account[]; // the person's own, of any service
}

export class AttachDialog {
  readonly #dialog = byId('attach', HTMLDialogElement);
  readonly #account = byId('attach-account', HTMLSelectElement);
  readonly #read = byId('attach-read', HTMLInputElement);
  readonly #full = byId('attach-full', HTMLInputElement);
  readonly #policy = byId('attach-policy', HTMLTextAreaElement);
  readonly #problem = byId('attach-problem');
  readonly #save = byId('attach-save', HTMLButtonElement);
  readonly #connect = byId('attach-connect', HTMLButtonElement);
  readonly #consent = byId('attach-consent', HTMLAnchorElement);
  #at: Attaching | undefined;

  constructor(private readonly api: IntegrationsAPI, private readonly changed: () => Promise<Mine | null>) {
    this.#account.addEventListener('change', () => this.#offer());
    this.#read.addEventListener('change', () => this.#choose());
    this.#full.addEventListener('change', () => this.#choose());
    this.#policy.addEventListener('input', () => this.#typed());
    this.#save.addEventListener('click', () => void this.#attach());
    this.#connect.addEventListener('click', () => void this.#begin());
    byId('attach-disconnect', HTMLButtonElement).addEventListener('click', () => void this.#disconnect());
    byId('attach-cancel', HTMLButtonElement).addEventListener('click', () => this.#dialog.close());
    this.#dialog.addEventListener('close', () => (this.#at = undefined));
    window.addEventListener('focus', () => void this.#again());
  }

  open(at: Attaching): void {
    this.#at = at;
    const name = providerLabel(at.provider);
    setText('attach-title', at.attachment === undefined ? `Attach ${name} to ${at.label}` : `${name} in ${at.label}`);
    setText(this.#save, at.attachment === undefined ? 'Attach' : 'Save');
    setText(this.#problem, '');
    setHidden(this.#consent, true);
    this.#write(at.attachment?.policy ?? readOnly);
    byId('attach-advanced', HTMLDetailsElement).open = false;
    this.#accounts(at.attachment?.account_id);
    this.#dialog.showModal();
    (this.#account.disabled ? this.#connect : this.#account).focus();
  }

  #accounts(chosen = this.#account.value): void {
    const own = (this.#at?.accounts ?? []).filter((account) => account.provider === this.#at?.provider);
    this.#account.replaceChildren(...own.map(({ id, name, needs_reconnect: again }) => h('option', { value: id }, `${visible(name)}${again === true ? ' (has to be connected again)' : ''}`)));
    if (own.some(({ id }) => id === chosen)) this.#account.value = chosen;
    const none = own.length === 0;
    if (none) this.#account.replaceChildren(h('option', { value: '' }, 'None is connected yet'));
    this.#account.disabled = none;
    this.#save.disabled = none;
    this.#connect.classList.toggle('primary', none);
    this.#offer();
    setHidden(this.#connect, false);
    setHidden('attach-disconnect', none);
  }

  // offer says what connecting would do.
  #offer(): void {
    const chosen = this.#at?.accounts.find(({ id }) => id === this.#account.value);
    const more = chosen?.needs_reconnect === true ? 'Connect again' : 'Connect another';
    setText(this.#connect, chosen === undefined ? 'Connect an account' : more);
  }

  // write shows a policy in both ways.
  #write(policy: Policy): void {
    this.#policy.value = policyJSON(policy);
    this.#mark(policy);
  }

  #mark(policy: Policy): void {
    this.#full.checked = policy.read_only === false;
    this.#read.checked = !this.#full.checked;
  }

  #choose(): void {
    const { policy } = readPolicy(this.#policy.value);
    this.#write(withAccess(policy ?? readOnly, this.#full.checked));
    setText(this.#problem, '');
  }

  #typed(): void {
    const { policy } = readPolicy(this.#policy.value);
    if (policy === null) return; // it may be half of what it becomes
    this.#mark(policy);
    setText(this.#problem, '');
  }

  async #attach(): Promise<void> {
    const { policy, problem } = readPolicy(this.#policy.value);
    setText(this.#problem, problem);
    const at = this.#at;
    if (policy === null || at === undefined) return;
    await this.#once(async () => {
      await this.api.attach(at.pty, at.provider, this.#account.value, policy);
      this.#dialog.close();
      await this.changed();
    });
  }

  // begin leads to where the person agrees, by a link: what opens by itself
  // browsers keep from opening, and one should see where one goes.
  async #begin(): Promise<void> {
    const provider = this.#at?.provider;
    if (provider === undefined) return;
    await this.#once(async () => {
      const to = consentAt(await this.api.connect(provider));
      if (this.#at?.provider !== provider) return;
      if (to === undefined) throw new Error('The control plane names no page at which an account could be connected.');
      this.#consent.href = to.href;
      setText(this.#consent, `Continue at ${to.host}`);
      setHidden(this.#consent, false);
      setHidden(this.#connect, true);
      this.#consent.focus();
    });
  }

  // again: the person may have agreed in another window.
  async #again(): Promise<void> {
    const provider = this.#at?.provider;
    if (provider === undefined || this.#consent.hidden) return;
    const mine = await this.changed();
    if (mine === null || this.#at === undefined || this.#at.provider !== provider) return;
    const usable = new Set(this.#at.accounts.filter((account) => account.needs_reconnect !== true).map(({ id }) => id));
    const news = mine.accounts.find((account) => account.provider === provider && account.needs_reconnect !== true && !usable.has(account.id));
    this.#at = { ...this.#at, accounts: mine.accounts };
    if (news === undefined) return;
    setHidden(this.#consent, true);
    this.#accounts(news.id);
    this.#save.focus();
  }

  async #disconnect(): Promise<void> {
    const id = this.#account.value;
    const account = this.#at?.accounts.find((a) => a.id === id);
    if (account === undefined) return;
    const text = 'It is detached from every terminal, and what was agreed to is revoked where the service allows that.';
    if (!(await ask(`Disconnect ${visible(account.name)}?`, text, 'Disconnect'))) return;
    await this.#once(async () => {
      await this.api.disconnect(id);
      const mine = await this.changed();
      if (this.#at === undefined) return;
      this.#at = { ...this.#at, accounts: mine?.accounts ?? this.#at.accounts.filter((a) => a.id !== id) };
      this.#accounts();
    });
  }

  // once does one change at a time, and says what went wrong.
  async #once(change: () => Promise<void>): Promise<void> {
    if (this.#dialog.dataset['busy'] !== undefined) return;
    this.#dialog.dataset['busy'] = '';
    setText(this.#problem, '');
    try {
      await change();
    } catch (error) {
      setText(this.#problem, messageOf(error));
    } finally {
      delete this.#dialog.dataset['busy'];
    }
  }
}
