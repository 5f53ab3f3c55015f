// Whether the person's tab is told to her session, and which that is. Chrome gives
// addresses of tabs to an extension with the permission "tabs" alone; it is asked
// for when she switches this on, and given back when she switches it off.

import { shareable, title } from './url.ts';

const permission = { permissions: ['tabs'] };
const remembered = 'shareTab';

export interface About {
  tabId: number;
  url: string;
  title: string;
}

export class Sharing {
  #on = false;
  #about: About | undefined;

  constructor(
    private readonly own: readonly string[],
    private readonly changed: (about: About | undefined) => void,
    ended: AbortSignal,
  ) {
    const activated = () => void this.#look();
    const updated = (_: number, { url, title }: { url?: string; title?: string }) => {
      if (url !== undefined || title !== undefined) void this.#look();
    };
    chrome.tabs.onActivated.addListener(activated);
    chrome.tabs.onUpdated.addListener(updated);
    ended.addEventListener('abort', () => {
      chrome.tabs.onActivated.removeListener(activated);
      chrome.tabs.onUpdated.removeListener(updated);
      this.#on = false;
      this.#about = undefined;
    });
  }

  get on(): boolean {
    return this.#on;
  }

  // about is the tab in front, undefined while nothing may be told of it.
  get about(): About | undefined {
    return this.#about;
  }

  // restore goes on as it was. A permission that was taken back elsewhere is off.
  async restore(): Promise<void> {
    const { [remembered]: on } = await chrome.storage.local.get(remembered);
    this.#on = on === true && (await chrome.permissions.contains(permission));
    await this.#look();
  }

  // set is called from a click: Chrome asks the person only then.
  async set(on: boolean): Promise<boolean> {
    this.#on = on && (await chrome.permissions.request(permission).catch(() => false));
    await chrome.storage.local.set({ [remembered]: this.#on });
    if (!on) await chrome.permissions.remove(permission).catch(() => false); // another part may need it
    await this.#look();
    return this.#on;
  }

  async #look(): Promise<void> {
    const before = this.#about;
    this.#about = this.#on ? await this.#front() : undefined;
    if (!this.#on) this.#about = undefined; // switched off meanwhile
    if (JSON.stringify(before) !== JSON.stringify(this.#about)) this.changed(this.#about);
  }

  async #front(): Promise<About | undefined> {
    const ours = chrome.runtime.getURL('');
    const [beside] = await chrome.tabs.query({ active: true, currentWindow: true });
    const tab = beside?.url?.startsWith(ours) === true ? await lastUsed(ours) : beside;
    const url = shareable(tab?.url, this.own);
    return tab?.id === undefined || url === undefined ? undefined : { tabId: tab.id, url, title: title(tab.title) };
  }
}

// lastUsed is what the person looked at before a panel that is a tab of its own.
async function lastUsed(ours: string): Promise<chrome.tabs.Tab | undefined> {
  const tabs = (await chrome.tabs.query({})).filter(({ url }) => url?.startsWith(ours) === false);
  return tabs.sort((a, b) => (b.lastAccessed ?? 0) - (a.lastAccessed ?? 0))[0];
}
