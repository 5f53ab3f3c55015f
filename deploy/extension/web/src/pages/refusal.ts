// Why something is not done, as seed 003 names it. Messages quote nothing that
// came from outside.

export type Name = 'AuthError' | 'ExpiredError' | 'LimitError' | 'RequestError' | 'TargetError' | 'UnsupportedError';

export interface Fault {
  message: string;
  name: Name;
}

export class Refusal extends Error {
  constructor(
    override readonly name: Name,
    message: string,
  ) {
    super(message);
  }

  get fault(): Fault {
    return { message: this.message, name: this.name };
  }
}

export const auth = (message: string): Refusal => new Refusal('AuthError', message);
export const malformed = (message: string): Refusal => new Refusal('RequestError', message);
export const noTarget = (message: string): Refusal => new Refusal('TargetError', message);
export const tooMuch = (message: string): Refusal => new Refusal('LimitError', message);
