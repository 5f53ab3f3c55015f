// What this part uses of Chrome's API beside what the others use.

declare namespace chrome {
  namespace runtime {
    interface Sender {
      url?: string;
      origin?: string;
      frameId?: number;
      documentLifecycle?: string;
    }
    interface Port {
      readonly name: string;
      readonly sender?: Sender;
      readonly onMessage: Event<(message: unknown) => void>;
      readonly onDisconnect: Event<() => void>;
      postMessage(message: unknown): void;
      disconnect(): void;
    }
    function connect(options: { name: string }): Port;
    function getManifest(): { version: string; externally_connectable?: { matches: string[] } };
    const onMessageExternal: Event<(message: unknown, sender: Sender, respond: (answer: unknown) => void) => boolean>;
    const onConnectExternal: Event<(port: Port) => void>;
    const onConnect: Event<(port: Port) => void>;
    const onStartup: Event<() => void>;
  }

  namespace storage {
    interface Area {
      get(keys: null): Promise<Record<string, unknown>>;
      get(keys: string | string[] | null): Promise<Record<string, unknown>>;
    }
  }

  namespace tabs {
    interface Tab {
      pendingUrl?: string;
      discarded?: boolean;
    }
    function get(tab: number): Promise<Tab>;
    const onRemoved: Event<(tab: number) => void>;
  }

  namespace alarms {
    function create(name: string, about: { periodInMinutes: number }): Promise<void>;
    function clear(name: string): Promise<boolean>;
    const onAlarm: Event<(alarm: { name: string }) => void>;
  }

  namespace action {
    function setBadgeText(about: { text: string }): Promise<void>;
    function setBadgeBackgroundColor(about: { color: string }): Promise<void>;
    function setTitle(about: { title: string }): Promise<void>;
  }

  namespace sidePanel {
    function open(about: { windowId: number }): Promise<void>;
  }
}

// A namespace can't have this name, but a member of one can.
declare namespace chrome {
  namespace _debugger {
    interface Target {
      tabId?: number;
    }
    function attach(target: Target, version: string): Promise<void>;
    function detach(target: Target): Promise<void>;
    function sendCommand(target: Target, method: string, params?: object): Promise<unknown>;
    const onEvent: Event<(source: Target, method: string, params?: Record<string, unknown>) => void>;
    const onDetach: Event<(source: Target, reason: string) => void>;
  }
  export { _debugger as debugger };
}
