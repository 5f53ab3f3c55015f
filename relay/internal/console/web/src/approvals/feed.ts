// Keeps up with what a session waits for, and passes on what the person
// decides until it is answered.

import { ApiError, backoff, Follow, overdueMs, pause, type ServerEvent, type Session } from '@fairlead/core';
import {
  cardsOf, choiceOf, choose, countOf, decidable, explain, logOf, merge, none, pending, problemOf, refuse, reopen, subjectOf,
  type Approval, type Approvals as State, type Decision, type Naming, type Opened, type Words,
} from './approvals.ts';
import { ApprovalCards } from './cards.ts';
import { EgressDialog } from './egress.ts';

const tickMs = 250;

export interface ApprovalHooks {
  naming: Naming;
  select(pty: string): void;
  converse?: (conversation: string) => void; // opens one
  focusTerminal(): void;
  changed(): void; // the page's title may say something else
}

// Elsewhere is what is asked on the page without these cards.
export interface Elsewhere {
  ids: ReadonlySet<string>;
  focus(): boolean; // moves to the one that has waited for longest, if there is one
}

interface Answer {
  approval: Approval | null;
  applied: boolean;
}

export class Approvals {
  #state: State = none;
  #connected: boolean | null = null; // null: not known yet
  #over = false; // these approvals can't be had
  #elsewhere: Elsewhere = { ids: new Set(), focus: () => false };
  #ticker: number | undefined;
  #away: number | undefined; // the timer that reports an absent sandbox
  readonly #cards: ApprovalCards;
  readonly #dialog: EgressDialog;
  readonly #follow: Follow;

  constructor(private readonly session: Session, private readonly hooks: ApprovalHooks) {
    this.#dialog = new EgressDialog(session);
    this.#cards = new ApprovalCards({
      decide: (id, decision, words) => void this.#decide(id, decision, words),
      select: hooks.select,
      converse: hooks.converse,
      changed: hooks.changed,
      focus: () => this.focus(),
      focusTerminal: hooks.focusTerminal,
    });
    this.#follow = new Follow({
      open: (since, signal, fresh) => session.request(`/approvals/events${since === '' ? '' : `?${new URLSearchParams({ since })}`}`, { signal }, fresh),
      event: (event) => this.#event(event),
      connected: (connected) => this.#connect(connected),
      over: () => this.#end(),
    });
  }

  start(): void {
    this.#follow.start();
  }

  // open shows what was decided, and the rules that stand.
  open(): void {
    this.#dialog.open();
    this.draw();
  }

  // asking is what the oldest that waits is about, '' where nothing does.
  get asking(): string {
    const oldest = this.#state === none ? undefined : [...this.#state.entries.values()].find(pending);
    return oldest === undefined ? '' : oldest.approval.kind === 'tool' ? subjectOf(oldest.approval) : (oldest.approval.host ?? '');
  }

  // leave shows no card of what is asked elsewhere.
  leave(elsewhere: Elsewhere): void {
    this.#elsewhere = elsewhere;
    this.hooks.changed();
  }

  // focus moves to what is to be decided, if there is something.
  focus(): boolean {
    return this.#cards.focus() || this.#elsewhere.focus();
  }

  // draw draws the cards, whose terminals may have other names now.
  draw(): void {
    const now = performance.now();
    const cards = cardsOf(this.#state, this.hooks.naming, now, (id) => this.#cards.holds(id));
    this.#cards.draw(cards, { count: countOf(this.#state), connected: this.#over || this.#connected !== false, elsewhere: this.#elsewhere.ids });
    if (this.#dialog.isOpen) this.#dialog.drawLog(logOf(this.#state, this.hooks.naming));
    clearTimeout(this.#ticker);
    this.#ticker = cards.length === 0 ? undefined : window.setTimeout(() => this.draw(), tickMs);
  }

  #set(state: State): void {
    this.#state = state;
    this.hooks.changed();
  }

  #connect(connected: boolean): void {
    if (this.#connected === connected) return;
    this.#connected = connected;
    this.hooks.changed();
  }

  #end(): void {
    this.#over = true;
    this.#set(none);
  }

  #event({ name, data }: ServerEvent): void {
    const now = performance.now();
    if (name === 'waiting') {
      this.#away ??= window.setTimeout(() => this.#connect(false), overdueMs);
      return;
    }
    if (name === 'opened') {
      const opened = JSON.parse(data) as Opened;
      const first = this.#state === none;
      clearTimeout(this.#away);
      this.#away = undefined;
      this.#connected = true;
      this.#set(reopen(this.#state, opened, now));
      if (first || opened.gap === true || opened.more === true) void this.#list();
    } else if (name === 'approval') {
      const { approval } = JSON.parse(data) as { approval: Approval };
      this.#set(merge(this.#state, approval, now));
      if (approval.kind !== 'tool' && (approval.decision === 'allow_always' || approval.decision === 'deny_always')) void this.#dialog.refresh(); // a rule
    }
  }

  // list reads what was decided before this page came.
  async #list(): Promise<void> {
    try {
      const list = (await this.session.get<{ approvals: Approval[] | null }>('/approvals')).approvals ?? [];
      const now = performance.now();
      this.#set(list.reduce((state, approval) => merge(state, approval, now), this.#state));
    } catch {
      // The log stays shorter; the stream brought what waits.
    }
  }

  async #decide(id: string, decision: Decision, words: Words): Promise<void> {
    const entry = this.#state.entries.get(id);
    if (entry === undefined || !pending(entry) || entry.choice?.state === 'sending') return;
    this.#set(choose(this.#state, id, decision, crypto.randomUUID(), words));
    const { revision, kind } = entry.approval;
    const key = this.#state.entries.get(id)?.choice?.key ?? '';
    let fresh = false;
    for (let failures = 1; choiceOf(this.#state, id, key) !== undefined; failures++) {
      try {
        const answer = await this.session.request(`/approvals/${encodeURIComponent(id)}`, { method: 'POST', body: { kind, revision, decision, ...words }, key }, fresh);
        return this.#answered((await answer.json()) as Answer);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        const problem = problemOf(error.status, error.message);
        if (problem === 'refused' && error.status === 401 && !fresh) {
          fresh = true; // the grant had ended
          continue;
        }
        fresh = false;
        if (choiceOf(this.#state, id, key) === undefined) return; // the stream brought the outcome
        if (problem !== 'again') return this.#set(refuse(this.#state, id, problem, error.message));
        this.#set(explain(this.#state, id, `${error.message.replace(/\.$/, '')}: trying again`));
        await pause(this.session.platform.clock, backoff(failures, Math.random()));
      }
    }
  }

  #answered({ approval }: Answer): void {
    const state = decidable(this.#state);
    this.#set(approval === null ? state : merge(state, approval, performance.now()));
  }
}
