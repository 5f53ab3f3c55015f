// Which sites' cookies the session takes, and the editor of that.

import { h, keyed, setHidden, setText } from '../ui/dom.ts';
import { messageOf } from '../ui/format.ts';
import { visible } from '../ui/visible.ts';
import type { SyncAPI } from './api.ts';
import { modeOf, policyText, problemOf, read, siteOf, withSite, write, type Domain, type Mode, type Policy } from './model.ts';
import type { Act } from './pairings.ts';

// More patterns than this are in the editor alone.
const mostShown = 30;

const modes: readonly [Mode, string][] = [['all', 'Every site'], ['blocklist', 'Every site but these'], ['allowlist', 'Only these']];

export class PolicyView {
  readonly element = h('div', { class: 'sync-policy', 'data-testid': 'sync-policy' });
  readonly #says = h('p', { 'data-testid': 'policy-says' });
  readonly #list = h('ul', { class: 'sync-patterns', 'data-testid': 'policy-list' });
  readonly #more = h('p', { class: 'fine' });
  readonly #change = h('button', { class: 'button small', type: 'button', 'data-testid': 'btn-policy' }, 'Change what is taken');
  readonly #form = h('form', { hidden: '' });
  readonly #mode = h('select', { class: 'sessions', 'data-testid': 'policy-mode' }, ...modes.map(([value, label]) => h('option', { value }, label)));
  readonly #patterns = h('textarea', { rows: '8', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: 'github.com # work\n%.github.com', 'data-testid': 'policy-patterns' });
  readonly #site = h('input', { autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: 'example.com', 'aria-label': 'A site to add, with all below it', 'data-testid': 'policy-site' });
  readonly #add = h('button', { class: 'button', type: 'button', 'data-testid': 'btn-policy-add' }, 'Add site');
  readonly #named = h('div', {});
  readonly #replaces = h('p', { class: 'sync-warning' }, 'The sandbox’s policy file can’t be read. What you save takes its place.');
  readonly #problem = h('p', { class: 'problem', role: 'alert', 'data-testid': 'policy-problem' });
  readonly #save = h('button', { class: 'button primary', type: 'submit', 'data-testid': 'btn-policy-save' }, 'Save');
  readonly #cancel = h('button', { class: 'button', type: 'button' }, 'Cancel');
  #policy: Policy = { policy: '', domains: [] };
  #may = false; // change it

  constructor(private readonly api: SyncAPI, private readonly act: Act) {
    this.#named.append(
      h('label', { class: 'field' }, 'Patterns of cookies’ hosts, one a line: % stands for anything, _ for one letter; what follows “ # ” is a note', this.#patterns),
      h('div', { class: 'sync-add' }, this.#site, this.#add),
    );
    this.#form.append(
      this.#replaces, h('label', { class: 'field' }, 'Taken are the cookies of', this.#mode), this.#named,
      h('p', { class: 'fine' }, 'What doesn’t pass any more leaves the sandbox’s Chromium at once. What passes from now on comes with the next push.'),
      this.#problem, h('div', { class: 'choices' }, this.#cancel, this.#save),
    );
    this.element.append(this.#says, this.#list, this.#more, this.#change, this.#form);
    this.#change.addEventListener('click', () => this.#edit());
    this.#cancel.addEventListener('click', () => {
      this.clear();
      this.#change.focus();
    });
    this.#mode.addEventListener('change', () => this.#draw());
    this.#add.addEventListener('click', () => this.#addSite());
    this.#site.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.isComposing) return;
      event.preventDefault();
      this.#addSite();
    });
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#send();
    });
  }

  // clear closes the editor.
  clear(): void {
    setHidden(this.#form, true);
    this.#draw();
  }

  draw(policy: Policy, { mayChange, enabled }: { mayChange: boolean; enabled: boolean }): void {
    this.#policy = policy;
    const broken = (policy.error ?? '') !== '';
    setText(this.#says, policyText(policy));
    this.#says.classList.toggle('problem', broken);
    keyed(this.#list, policy.domains.slice(0, mostShown).map((d, i) => ({ ...d, i })), ({ pattern, i }) => `${i} ${pattern}`,
      () => h('li', {}, h('bdi', { class: 'mono', dir: 'ltr' }), h('span', { class: 'fine' })),
      (row, { pattern, description = '' }) => {
        const [what, why] = [...row.children];
        if (what === undefined || why === undefined) return;
        setText(what, visible(pattern));
        setText(why, visible(description));
      });
    setText(this.#more, policy.domains.length > mostShown ? `And ${policy.domains.length - mostShown} more.` : '');
    setHidden(this.#more, policy.domains.length <= mostShown);
    setHidden(this.#replaces, !broken);
    this.#may = mayChange;
    this.#save.disabled = this.#change.disabled = !enabled;
    this.#draw();
  }

  #edit(): void {
    this.#mode.value = modeOf(this.#policy);
    this.#patterns.value = write(this.#policy.domains);
    this.#site.value = '';
    setText(this.#problem, '');
    setHidden(this.#form, false);
    this.#draw();
    this.#mode.focus();
  }

  #addSite(): void {
    const site = siteOf(this.#site.value);
    setText(this.#problem, site === '' ? `“${visible(this.#site.value)}” is no site: want a name such as example.com.` : '');
    if (site === '') return;
    this.#patterns.value = write(withSite(read(this.#patterns.value), site));
    this.#patterns.scrollTop = this.#patterns.scrollHeight;
    this.#site.value = '';
    this.#site.focus();
  }

  async #send(): Promise<void> {
    const mode = this.#mode.value as Mode;
    const domains: Domain[] = read(this.#patterns.value);
    const problem = problemOf(mode, domains);
    setText(this.#problem, problem);
    if (problem !== '') return;
    try {
      await this.act(() => this.api.setPolicy(mode, domains), 'The policy is saved');
      this.clear();
      this.#change.focus();
    } catch (error) {
      setText(this.#problem, messageOf(error));
    }
  }

  #draw(): void {
    const edited = !this.#form.hidden;
    setHidden(this.#change, edited || !this.#may);
    setHidden(this.#list, edited || this.#policy.domains.length === 0);
    setHidden(this.#named, this.#mode.value === 'all');
  }
}
