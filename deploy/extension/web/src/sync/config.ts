// What this build was made for: config.json, beside the scripts.

export interface Configuration {
  origins: string[]; // the relays
  controlPlane: string; // the control plane's own origin
}

export async function configuration(): Promise<Configuration> {
  return (await (await fetch(chrome.runtime.getURL('config.json'))).json()) as Configuration;
}
