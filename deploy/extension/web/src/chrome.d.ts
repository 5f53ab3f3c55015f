// What the extension uses of Chrome's API, and no more: a call that isn't here
// needs a permission that a manifest may not have.

declare namespace chrome {
  interface Event<F extends (...args: never[]) => unknown> {
    addListener(listener: F): void;
    removeListener(listener: F): void;
  }

  namespace runtime {
    interface Sender {
      id?: string;
      tab?: tabs.Tab;
    }
    const id: string;
    function getURL(path: string): string;
    function sendMessage(message: unknown): Promise<unknown>;
    const onMessage: Event<(message: unknown, sender: Sender, respond: (answer: unknown) => void) => boolean | void>;
    const onInstalled: Event<(details: { reason: string }) => void>;
  }

  namespace storage {
    interface Area {
      get(keys: string | string[]): Promise<Record<string, unknown>>;
      set(items: Record<string, unknown>): Promise<void>;
      remove(keys: string | string[]): Promise<void>;
    }
    const session: Area & { onChanged: Event<(changes: Record<string, { newValue?: unknown }>) => void> };
    const local: Area;
  }

  namespace tabs {
    interface Tab {
      id?: number;
      active: boolean;
      windowId: number;
      url?: string; // only with the permission "tabs"
      title?: string;
      lastAccessed?: number;
    }
    function query(about: { active?: boolean; currentWindow?: boolean; url?: string[] }): Promise<Tab[]>;
    function create(properties: { url: string }): Promise<Tab>;
    function sendMessage(tab: number, message: unknown): Promise<unknown>;
    const onActivated: Event<(about: { tabId: number; windowId: number }) => void>;
    const onUpdated: Event<(tab: number, change: { url?: string; title?: string }) => void>;
  }

  namespace permissions {
    function contains(what: { permissions: string[] }): Promise<boolean>;
    function request(what: { permissions: string[] }): Promise<boolean>;
    function remove(what: { permissions: string[] }): Promise<boolean>;
  }

  namespace sidePanel {
    function setPanelBehavior(behavior: { openPanelOnActionClick: boolean }): Promise<void>;
    function open(where: { tabId: number }): Promise<void>;
  }
}
