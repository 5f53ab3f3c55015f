// What this build was made for: config.json, beside the scripts.

export interface Configuration {
  origins: string[]; // the relays, the first one to begin with
}

export async function configuration(): Promise<Configuration> {
  return (await (await fetch(chrome.runtime.getURL('config.json'))).json()) as Configuration;
}
