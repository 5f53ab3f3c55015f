// What passes between a console's page, our script in it and our worker when a
// conversation is to be shown in the side panel. Pure.

// The page says which one, and hears whether the panel has it, as events on its
// document: their detail is text.
export const request = 'fairlead-panel-show';
export const answer = 'fairlead-panel-shown';

// What the page is told.
export type Outcome = 'opened' | 'closed'; // closed: the browser wants a click on the button first

export interface Place {
  session: string;
  conversation: string;
}

const id = /^[A-Za-z0-9_.:-]{1,128}$/;

// readPlace takes what a page has said, which may be anything.
export function readPlace(value: unknown): Place | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { session, conversation } = value as Record<string, unknown>;
  if (typeof session !== 'string' || typeof conversation !== 'string' || !id.test(session) || !id.test(conversation)) return undefined;
  return { session, conversation };
}

// parsePlace is readPlace of the text of an event.
export function parsePlace(text: unknown): Place | undefined {
  if (typeof text !== 'string' || text.length > 1_024) return undefined;
  try {
    return readPlace(JSON.parse(text));
  } catch {
    return undefined;
  }
}
