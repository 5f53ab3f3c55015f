// Pages of the session's plugins: which there are, and the one that is shown. Each
// is a preview, on a host of its own, so it shares nothing with this page.

import type { PluginInfo, Session } from '@fairlead/core';
import { byId, h, setHidden } from '../ui/dom.ts';

// Pages that stay loaded while another is shown; the first of them goes.
const mostOpen = 4;

const prefix = 'plugin:';

// pageTab names the tab of a plugin's page, and pageOf the plugin whose page a tab
// stands for, '' for a terminal's.
export const pageTab = (name: string): string => prefix + name;
export const pageOf = (tab: string): string => (tab.startsWith(prefix) ? tab.slice(prefix.length) : '');

export interface PageOptions {
  may: boolean; // by the person's capabilities
  changed(): void;
}

interface Page {
  element: HTMLElement;
  port: number; // 0: it couldn't be opened
  preview: string; // its id; '' until it is there
}

export class Pages {
  readonly #host = byId('pages');
  readonly #open = new Map<string, Page>(); // the least recently shown first
  #all: PluginInfo[] = [];
  #asked = 0;
  #shown = '';

  constructor(private readonly session: Session, private readonly options: PageOptions) {
    session.onRenewed(() => this.#renew());
  }

  get all(): PluginInfo[] {
    return this.#all;
  }

  // shown is the name of the plugin whose page is in front, '' where none is.
  get shown(): string {
    return this.#shown;
  }

  // readAgain asks which plugins there are. Where that fails the next time will do.
  readAgain(): void {
    if (!this.options.may) return;
    const turn = ++this.#asked;
    this.session.plugins().then((all) => {
      if (turn !== this.#asked) return; // a later request was made
      this.#all = all;
      for (const [name, page] of this.#open) if (name !== this.#shown && !all.some((p) => p.name === name && p.port === page.port)) this.#drop(name);
      this.options.changed();
    }, () => {});
  }

  // show brings a plugin's page to the front. One that runs on another port than
  // when it was shown last is loaded anew.
  show(name: string): void {
    const plugin = this.#all.find((p) => p.name === name);
    if (plugin === undefined) return;
    if (this.#open.get(name)?.port !== plugin.port) this.#drop(name);
    let page = this.#open.get(name);
    if (page === undefined) {
      page = { element: h('div', {}, h('p', { role: 'status' }, `Opening ${name}…`)), port: plugin.port, preview: '' };
      this.#host.append(page.element);
      void this.#load(name, page);
    }
    this.#open.delete(name); // to the end
    this.#open.set(name, page);
    const [first] = this.#open.keys();
    if (this.#open.size > mostOpen && first !== undefined) this.#drop(first);
    this.#shown = name;
    this.#draw();
  }

  hide(): void {
    this.#shown = '';
    this.#draw();
  }

  async #load(name: string, page: Page): Promise<void> {
    try {
      const { id, url } = await this.session.preview(page.port);
      page.preview = id;
      const frame = h('iframe', {
        src: url, title: `Page of ${name}`, referrerpolicy: 'no-referrer', allow: '', 'data-testid': `page-${name}`,
        sandbox: 'allow-scripts allow-same-origin allow-forms allow-popups allow-modals allow-downloads',
      });
      page.element.replaceChildren(frame);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      page.element.replaceChildren(h('p', { role: 'alert' }, `The page of ${name} can’t be opened: ${why}`));
      page.port = 0; // the next time is another attempt
    }
  }

  // renew has the pages that are open go on under the person's newest grant.
  #renew(): void {
    for (const { port, preview } of this.#open.values()) {
      if (preview !== '') this.session.preview(port, preview).catch(() => {}); // it says so itself when it has ended
    }
  }

  #drop(name: string): void {
    this.#open.get(name)?.element.remove();
    this.#open.delete(name);
  }

  #draw(): void {
    setHidden(this.#host, this.#shown === '');
    for (const [name, { element }] of this.#open) setHidden(element, name !== this.#shown);
  }
}
