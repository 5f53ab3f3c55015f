// Changes that a person makes, one at a time, and what is said when one fails.

import { Unsettled } from '@fairlead/core';
import { installOf } from '../agents/agents.ts';
import { hint, type HintAction } from '../ui/ask.ts';
import { copy } from '../ui/clipboard.ts';
import { messageOf } from '../ui/format.ts';

// Once makes a change unless another is under way. Of what may have been done all
// the same it offers to ask, and nothing else.
export type Once = (change: () => Promise<void>) => Promise<void>;

// oneAtATime calls done after each change.
export function oneAtATime(done: () => void): Once {
  let busy = false;
  const once: Once = async (change) => {
    if (busy) return;
    busy = true;
    try {
      await change();
    } catch (error) {
      const text = messageOf(error);
      hint(text, error instanceof Unsettled ? { label: 'Ask again', run: () => void once(change) } : adviceOf(text));
    } finally {
      busy = false;
      done();
    }
  };
  return once;
}

// adviceOf offers to copy the command that a refusal advises.
function adviceOf(text: string): HintAction | undefined {
  const command = installOf(text);
  if (command === undefined) return undefined;
  return { label: 'Copy the command', run: () => void copy(command).then((done) => hint(done ? 'Copied: paste it into this terminal' : command)) };
}
