// Server-sent events, as they come in pieces. Pure.

export interface ServerEvent {
  name: string;
  data: string;
  id: string; // of the last event that had one
}

// An event larger than this is not the relay's.
const mostChars = 4 << 20;

export class EventParser {
  #rest = ''; // a line that hasn't ended
  #name = '';
  #data: string[] = [];
  #id = '';

  // push takes what comes next and returns the events that it completes.
  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/); // a last \r may be half of a \r\n
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line !== '') this.#field(line);
      else if (this.#data.length > 0) events.push(this.#take());
      else this.#name = '';
    }
    if (this.#rest.length + this.#data.reduce((sum, part) => sum + part.length, 0) > mostChars) throw new Error('an event is too large');
    return events;
  }

  #field(line: string): void {
    const colon = line.indexOf(':');
    if (colon === 0) return; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') this.#name = value;
    else if (name === 'data') this.#data.push(value);
    else if (name === 'id' && !value.includes('\0')) this.#id = value;
  }

  #take(): ServerEvent {
    const event = { name: this.#name || 'message', data: this.#data.join('\n'), id: this.#id };
    this.#name = '';
    this.#data = [];
    return event;
  }
}
