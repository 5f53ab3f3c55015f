// The tab that the person looks at. Its address is known with the permission "tabs",
// for the site's, or after a click on the extension's button.

// front is the tab in front. A popup belongs to it; a page of our own, to the one
// before that.
export async function front(): Promise<chrome.tabs.Tab | undefined> {
  const own = chrome.runtime.getURL('');
  const isOwn = ({ url }: chrome.tabs.Tab): boolean => url?.startsWith(own) === true;
  const [tab] = await chrome.tabs.query({ active: true, currentWindow: true });
  if (tab === undefined || !isOwn(tab)) return tab;
  const others = (await chrome.tabs.query({})).filter((other) => !isOwn(other));
  return others.sort((a, b) => (b.lastAccessed ?? 0) - (a.lastAccessed ?? 0))[0];
}
