// How a laptop is paired: by fairlead-source there, or from here for a program that
// shows a code and waits. A code is in this page from the moment it is typed until
// the pairing is made, or the panel is closed, and nowhere else.

import { hint } from '../ui/ask.ts';
import { copy } from '../ui/clipboard.ts';
import { h, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import type { SyncAPI } from './api.ts';
import { answerOf, askingText, codeOf, configText, sourceCommands, whenText, type Begun, type Finished } from './model.ts';
import type { Act } from './pairings.ts';

const plain = { autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' };

// commands is text to copy into a terminal.
function commands(id: string): { element: HTMLElement; set(text: string): void } {
  const code = h('pre', { tabindex: '0', 'data-testid': id, 'aria-label': 'To copy' });
  const button = h('button', { class: 'button small', type: 'button', 'data-testid': `btn-copy-${id}` }, 'Copy');
  button.addEventListener('click', () => {
    void copy(code.textContent ?? '').then((done) => hint(done ? 'Copied' : 'The browser does not let this page write the clipboard'));
  });
  return { element: h('div', { class: 'sync-commands' }, code, button), set: (text) => setText(code, text) };
}

export class PairForm {
  readonly element = h('details', { class: 'sync-pair', 'data-testid': 'sync-pair' });
  readonly #name = h('input', { ...plain, maxlength: '60', placeholder: 'laptop', 'data-testid': 'pair-name' });
  readonly #begin = h('button', { class: 'button primary', type: 'submit', 'data-testid': 'btn-pair-begin' }, 'Begin');
  readonly #code = h('input', { ...plain, autocapitalize: 'characters', placeholder: 'ABCD-EFGH-IJKL', 'data-testid': 'pair-code' });
  readonly #asking = commands('pair-ask');
  readonly #answer = h('textarea', { ...plain, rows: '4', placeholder: '{"protocol_version":1,"source_public_key":…}', 'data-testid': 'pair-answer' });
  readonly #finish = h('button', { class: 'button primary', type: 'submit', 'data-testid': 'btn-pair-finish' }, 'Pair');
  readonly #cancel = h('button', { class: 'button', type: 'button', 'data-testid': 'btn-pair-cancel' }, 'Begin again');
  readonly #until = h('p', { class: 'fine' });
  readonly #problem = h('p', { class: 'problem', role: 'alert', 'data-testid': 'pair-problem' });
  readonly #made = h('div', { class: 'sync-made', role: 'status', 'data-testid': 'pair-made' });
  readonly #one = h('form', {});
  readonly #two = h('form', {});
  readonly #three = h('div', {}); // of the second form, from the code on
  #begun: Begun | undefined;

  constructor(private readonly api: SyncAPI, session: string, private readonly act: Act) {
    const own = commands('pair-commands');
    own.set(sourceCommands(session));
    this.element.append(
      h('summary', { class: 'button', 'data-testid': 'btn-pair' }, 'Pair a laptop'),
      h('p', {}, 'On the laptop, in a terminal:'), own.element,
      h('p', { class: 'fine' }, 'CONTROL-PLANE is that server’s own address, from whoever runs it: a relay’s, such as this page’s, could be made to read what is pushed. login asks for your token, pair names the sites that are sent, and push sends them for as long as it runs.'),
      this.#other(),
    );
    this.#draw();
  }

  // clear forgets what was typed.
  clear(): void {
    this.#begun = undefined;
    for (const field of [this.#name, this.#code, this.#answer]) field.value = '';
    this.#made.replaceChildren();
    setText(this.#problem, '');
    this.#draw();
  }

  draw(enabled: boolean): void {
    this.#begin.disabled = this.#finish.disabled = this.#cancel.disabled = !enabled;
  }

  #other(): HTMLElement {
    this.#one.append(h('label', { class: 'field' }, 'What the laptop is to be called here', this.#name), this.#begin);
    this.#three.append(
      h('p', {}, '2. Run this on the laptop:'), this.#asking.element,
      h('label', { class: 'field' }, '3. Paste what that printed', this.#answer),
    );
    this.#two.append(
      h('label', { class: 'field' }, '1. The code that the program shows (its command “pair”)', this.#code),
      this.#three, this.#until, h('div', { class: 'choices' }, this.#cancel, this.#finish),
    );
    this.#one.addEventListener('submit', (event) => this.#submit(event, () => this.#start()));
    this.#two.addEventListener('submit', (event) => this.#submit(event, () => this.#end()));
    this.#code.addEventListener('input', () => this.#draw());
    this.#cancel.addEventListener('click', () => this.clear());
    return h('details', { class: 'sync-other', 'data-testid': 'pair-other' },
      h('summary', {}, 'Pair another program that shows a code'),
      h('p', { class: 'fine' }, 'For a source program of your own that waits at http://127.0.0.1:9998/pair. What you paste here passes through this page’s relay; “fairlead-source pair --source” does the same past it.'),
      this.#one, this.#two, this.#problem, this.#made);
  }

  #submit(event: Event, step: () => Promise<void>): void {
    event.preventDefault();
    setText(this.#problem, '');
    step().catch((error: unknown) => setText(this.#problem, messageOf(error)));
  }

  async #start(): Promise<void> {
    await this.act(async () => {
      this.#begun = await this.api.begin(this.#name.value.trim());
    }, '');
    this.#made.replaceChildren();
    this.#draw();
    this.#code.focus();
  }

  async #end(): Promise<void> {
    const begun = this.#begun;
    const code = codeOf(this.#code.value);
    if (begun === undefined) return;
    if (code === '') throw new Error('A code has 8 or 12 letters: A to Z, and 2 to 7.');
    const answer = answerOf(this.#answer.value);
    if (typeof answer === 'string') throw new Error(answer);
    let made: Finished | undefined;
    await this.act(async () => {
      made = await this.api.finish(begun.pairing, answer, code);
    }, '');
    this.clear();
    if (made !== undefined) this.#tell(made, begun);
  }

  #tell({ url, fingerprint, warning = '' }: Finished, { sinkHostname }: Begun): void {
    const config = commands('pair-config');
    config.set(configText(url, sinkHostname));
    this.#made.replaceChildren(
      h('p', {}, h('b', {}, 'Paired. '), 'The fingerprint is ', h('code', {}, visible(fingerprint)), ': the program must show the same. If it doesn’t, stop and forget the pairing.'),
      ...(warning === '' ? [] : [h('p', { class: 'sync-warning' }, visible(warning))]),
      h('p', {}, 'Put this into its source.yaml:'), config.element,
      h('p', { class: 'fine' }, 'Today’s program sends version 2: accept that at the pairing above. It sends what its own policy lets pass.'));
  }

  #draw(): void {
    const begun = this.#begun;
    setHidden(this.#one, begun !== undefined);
    setHidden(this.#two, begun === undefined);
    if (begun === undefined) return this.#asking.set(''); // there was a code in it
    const code = codeOf(this.#code.value);
    setHidden(this.#three, code === '');
    setHidden(this.#finish, code === '');
    this.#asking.set(code === '' ? '' : askingText(begun, code));
    setText(this.#until, `The sandbox waits until ${whenText(begun.expiresAt)}.`);
  }
}
