// The conversation that a console's page wants shown. The worker leaves it in the
// extension's storage, since the panel may only be about to open.

import { readPlace, type Place } from './handover.ts';

const key = 'wanted';

// want leaves it there.
export const want = (place: Place): Promise<void> => chrome.storage.session.set({ [key]: place });

export class Wanted {
  // show reports whether it could be shown; else it waits.
  constructor(private readonly show: (place: Place) => Promise<boolean>) {
    chrome.storage.session.onChanged.addListener((changes) => {
      if (changes[key]?.newValue !== undefined) void this.look();
    });
  }

  async look(): Promise<void> {
    const place = readPlace((await chrome.storage.session.get(key))[key]);
    if (place !== undefined && (await this.show(place))) await chrome.storage.session.remove(key);
  }
}
