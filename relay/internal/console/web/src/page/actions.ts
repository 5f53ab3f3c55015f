// What the buttons do with the terminal that is shown.

import { closedToOthers, type AgentStart, type AgentVerb, type ClientMessage, type LogPart, type Session } from '@fairlead/core';
import { agentLabel } from '../agents/agents.ts';
import { Earlier } from '../terminal/earlier.ts';
import type { Pane } from '../terminal/pane.ts';
import { SearchBar } from '../terminal/search.ts';
import { warning } from '../terminal/share.ts';
import { ask, hint } from '../ui/ask.ts';
import { font, touch } from '../ui/theme.ts';
import { choose, chosen, resized, type SizeStep } from '../ui/typesize.ts';
import { oneAtATime, type Once } from './once.ts';

export interface ActionHooks {
  shown(): Pane | undefined;
  changed(): void;
}

export class Actions {
  readonly search = new SearchBar();
  readonly once: Once;
  readonly #earlier = new Earlier();

  constructor(private readonly session: Session, private readonly hooks: ActionHooks) {
    this.once = oneAtATime(() => hooks.changed());
  }

  get #pane(): Pane | undefined {
    return this.hooks.shown();
  }

  // send tells the relay what the person wants; by the time a connection is
  // back they may want something else.
  send(message: ClientMessage): void {
    const terminal = this.#pane?.terminal;
    if (terminal?.connection.phase.name === 'attached') terminal.send(message);
    else hint('There is no connection at the moment');
  }

  async record(): Promise<void> {
    const pane = this.#pane;
    if (pane === undefined) return;
    const on = pane.terminal.facts.recording === '';
    await this.once(async () => {
      await this.session.record(pane.id, on);
      hint(on ? 'Recording: everybody here can see that' : 'The recording is in the list of recordings');
    });
  }

  async share(to: string): Promise<void> {
    const pane = this.#pane;
    if (pane === undefined) return;
    if (to === closedToOthers || (await ask(warning.title, warning.text, warning.yes))) await this.once(() => this.session.share(pane.id, to));
    else this.hooks.changed();
  }

  async startAgent(what: AgentStart): Promise<void> {
    await this.#withAgent((id) => this.session.startAgent(id, what));
  }

  async steerAgent(verb: AgentVerb): Promise<void> {
    await this.#withAgent((id) => this.session.steerAgent(id, verb));
  }

  async stopAgent(): Promise<void> {
    const label = agentLabel(this.#pane?.control.agent ?? '');
    if (await ask(`Stop ${label}?`, 'It is interrupted, and ended if that is not enough. The terminal stays.', 'Stop')) await this.steerAgent('stop');
  }

  async #withAgent(change: (id: string) => Promise<void>): Promise<void> {
    const pane = this.#pane;
    if (pane === undefined) return;
    await this.once(() => change(pane.id));
    pane.screen.focus();
  }

  find(): void {
    const screen = this.#pane?.screen;
    if (screen !== undefined) this.search.open(screen, screen.selection);
  }

  // copy copies what is selected; on a phone, where nothing can be, the screen.
  copy(): void {
    const screen = this.#pane?.screen;
    if (screen === undefined || screen.copy()) return;
    if (touch.matches) screen.copyAll();
    else hint('Select some text first');
  }

  async paste(): Promise<void> {
    try {
      await this.#pane?.paste(await navigator.clipboard.readText());
    } catch {
      hint('The browser does not let this page read the clipboard');
    }
  }

  size(step: SizeStep): void {
    choose(resized(chosen(), font().normal, step));
    this.#pane?.layout(true);
    this.hooks.changed();
  }

  // showEarlier shows output that isn't on the screen: what was skipped, or else
  // what was before.
  showEarlier(skipped?: LogPart): void {
    const pane = this.#pane;
    const part = skipped ?? pane?.earlier;
    if (pane === undefined || !part) return;
    const title = skipped === undefined ? 'Earlier output' : 'Skipped output';
    void this.#earlier.show(title, part, pane.screen.cols, (wanted) => this.session.log(pane.id, wanted));
  }
}
