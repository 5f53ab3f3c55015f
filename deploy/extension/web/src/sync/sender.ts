// The one that holds what there is of the pairing, and sends. All that matters is in
// storage before it counts: the worker may end at any time.

import { isLink, readLink, unusable, type Link } from '../signin/link.ts';
import { visible } from '@fairlead/console/ui/visible.ts';
import type { Me, SessionInfo } from '@fairlead/core';
import type { Area } from '../pages/area.ts';
import { NotTaken, post, tooLarge, tooMuch } from './answer.ts';
import { bound, envelope, gather, setOf, type Cookie, type Gathered } from './cookie.ts';
import type { KeyStore } from './keep.ts';
import { ControlPlane, isPairing, pairWith, unpair, type Pairing } from './pairing.ts';
import { hexOf, seal } from './seal.ts';
import { covers, isSite, oursBy } from './site.ts';
import type { Last, State, Wish } from './told.ts';
import { ask, atRest, change, done, due, fail, isLeft, isPace, number, revive, take, type Pace } from './when.ts';

const stored = 'sync';
const linkAt = 'link'; // the panel's, too
const wantedAt = 'sync.wanted';
const mostSites = 200;
const mostWanted = 8;
const hostname = 'browser'; // a name for the sequence: one pairing is one browser's

// A World is what the sender needs of the browser.
export interface World {
  local: Area;
  session: Area; // gone with the browser
  keys: KeyStore;
  cookies(site: string): Promise<Cookie[]>;
  permitted(site: string): Promise<boolean>;
  giveBack(site: string): Promise<void>;
  fetch: typeof globalThis.fetch;
  control(token: string): ControlPlane;
  origins: readonly string[]; // the relays
  controlPlane: string;
  name: string; // what the console calls this browser
  now(): number;
  random(): number;
  wake(at: number | undefined, left: boolean): void; // has tick called at a time, and by a later worker while anything is left
  changed(): void; // of what the popup shows
}

interface Kept {
  pairing: Pairing | null;
  sites: { site: string; cookies: number }[];
  pace: Pace;
  last: Last | null;
  there: boolean; // the sandbox may have cookies of this pairing
  problem: string;
}

export class Sender {
  #kept: Kept = { pairing: null, sites: [], pace: atRest, last: null, there: false, problem: '' };
  #link: Link | null = null;
  #me: Me | null = null;
  #busy: State['busy'] = '';
  #mayForget = false;
  #asked = ''; // a problem with what the person has just asked for
  #turn: Promise<void> = Promise.resolve();
  #sent = ''; // the hash of what the last push of this worker had
  readonly #ours: (host: string) => boolean;
  readonly ready: Promise<void>;

  constructor(private readonly world: World) {
    this.#ours = oursBy([...world.origins, world.controlPlane]);
    this.ready = this.#load();
  }

  async #load(): Promise<void> {
    const [{ [stored]: kept }, { [linkAt]: link }] = await Promise.all([this.world.local.get(stored), this.world.session.get(linkAt)]);
    if (isLink(link, this.world.origins)) this.#link = link;
    const { pairing, sites, pace, last, there, problem } = (kept ?? {}) as Partial<Kept>;
    this.#kept = {
      pairing: isPairing(pairing, this.world.origins) ? pairing : null,
      sites: (Array.isArray(sites) ? sites : []).filter((s) => isSite(s.site)).slice(0, mostSites),
      pace: isPace(pace) ? revive(pace) : atRest,
      last: last ?? null, there: there !== false, problem: typeof problem === 'string' ? problem : '',
    };
    this.#arm();
  }

  #save(): Promise<void> {
    return this.world.local.set({ [stored]: this.#kept });
  }

  #arm(): void {
    const { pairing, pace } = this.#kept;
    if (pairing === null) this.world.wake(undefined, false);
    else this.world.wake(due(pace, this.world.now()), isLeft(pace));
  }

  // state is what the popup shows.
  state(): State {
    const { pairing, sites, last, problem, pace } = this.#kept;
    const next = pairing !== null && problem !== '' ? (due(pace, this.world.now()) ?? 0) : 0;
    return {
      signedIn: this.#link !== null, session: this.#link?.session ?? '', sessions: this.#sessions(),
      pairing: pairing === null ? null : { session: visible(pairing.label), fingerprint: pairing.fingerprint, warning: visible(pairing.warning), pairedAt: pairing.pairedAt },
      sites, last, busy: this.#busy, problem: this.#asked || problem, failed: problem !== '', next: this.#asked === '' ? next : 0, mayForget: this.#mayForget,
      ours: [...this.world.origins, this.world.controlPlane],
    };
  }

  #sessions(): State['sessions'] {
    return (this.#me?.sessions ?? []).filter(({ capabilities }) => capabilities.includes('sync')).map((s) => ({ id: s.id, name: nameOf(s) }));
  }

  #nameOf(id: string): string {
    const session = this.#me?.sessions.find((s) => s.id === id);
    return session === undefined ? '' : nameOf(session);
  }

  // touched says that a cookie of a host has changed.
  async touched(domain: string): Promise<void> {
    await this.ready;
    if (this.#kept.sites.some(({ site }) => covers(site, domain))) await this.#change();
  }

  // again has all of it looked at: the browser was begun, or the extension is new.
  async again(): Promise<void> {
    await this.ready;
    await this.#change();
  }

  async #change(): Promise<void> {
    const known = this.#kept.pace.changed !== null && this.#kept.pace.halted === 'no';
    this.#kept.pace = change(this.#kept.pace, this.world.now());
    this.#arm();
    if (!known) await this.#save(); // once is enough: a dozen cookies come at a time
  }

  // tick pushes if it is time.
  async tick(): Promise<void> {
    await this.ready;
    const { pairing, pace } = this.#kept;
    const at = due(pace, this.world.now());
    if (pairing === null || at === undefined) return;
    if (at > this.world.now()) this.#arm();
    else await this.#push(pairing);
  }

  async #push(pairing: Pairing): Promise<void> {
    const { world } = this;
    const isMine = (): boolean => this.#kept.pairing === pairing;
    this.#kept.pace = take(this.#kept.pace, world.now());
    try {
      await this.#save();
      const gathered = await this.#gather();
      if (!isMine()) return;
      this.#kept.sites = this.#kept.sites.map(({ site, cookies }) => ({ site, cookies: gathered.counts[site] ?? cookies }));
      const last = await this.#send(pairing, gathered);
      if (!isMine()) return;
      this.#kept.pace = done(this.#kept.pace);
      this.#kept.problem = '';
      if (last !== undefined) this.#kept = { ...this.#kept, last, there: last.cookies > 0 };
    } catch (error) {
      if (!isMine()) return;
      const failure = error instanceof NotTaken ? error : new NotTaken('This browser could not make it ready to send.', 'later');
      this.#kept.pace = fail(this.#kept.pace, failure, world.now(), world.random());
      this.#kept.problem = failure.message;
    } finally {
      if (this.#busy === 'sending') this.#busy = '';
      await this.#save().catch(() => undefined); // the next one tries to, before it sends
      this.#arm();
      world.changed();
    }
  }

  // gather reads all that there is, of the sites whose permission stands.
  async #gather(): Promise<Gathered> {
    const sites = await Promise.all(this.#kept.sites.map(async ({ site }) => ({ site, cookies: (await this.world.permitted(site)) ? await this.world.cookies(site) : [] })));
    return gather(sites, this.#ours, this.world.now());
  }

  // send posts what was gathered, unless the last push had the same.
  async #send(pairing: Pairing, { cookies, leftOut }: Gathered): Promise<Last | undefined> {
    const { world } = this;
    const set = new TextEncoder().encode(`${pairing.id}\n${setOf(cookies)}`);
    const mark = hexOf(new Uint8Array(await crypto.subtle.digest('SHA-256', set)));
    if (mark === this.#sent) return undefined;
    if (cookies.length === 0 && !this.#kept.there) return undefined; // there is nothing, and nothing to take back
    const key = await world.keys.get(pairing.id);
    if (key === undefined) throw new NotTaken('The key of this pairing is gone from this browser. Stop, and pair again.', 'asked');
    this.#busy ||= 'sending';
    world.changed();
    // From now on the sandbox may have it, whether or not an answer comes.
    this.#sent = '';
    this.#kept.there ||= cookies.length > 0;
    this.#kept.pace = number(this.#kept.pace, world.now());
    await this.#save(); // before it goes out: a number that is lost could be used twice
    const plain = new TextEncoder().encode(envelope(hostname, this.#kept.pace.sequence, cookies));
    if (tooLarge(plain.length)) throw tooMuch();
    const push = await post(pairing.url, await seal(key, plain), world.fetch);
    this.#sent = mark;
    return { ...push, at: world.now(), cookies: cookies.length, leftOut, bound: bound(cookies, world.now()) };
  }

  // wish does what the person wants, one thing after the other.
  wish(wanted: Wish): Promise<void> {
    return this.#inTurn(async () => {
      this.#asked = '';
      await this.#obey(wanted);
    });
  }

  // permissions looks at what Chrome lets us do now.
  permissions(): Promise<void> {
    return this.#inTurn(() => this.#review());
  }

  // meet has the person's sessions known, for who may want to pair.
  meet(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#kept.pairing === null) await this.#who();
    });
  }

  // linked follows the panel, where the person may sign in and out as well.
  linked(link: unknown): Promise<void> {
    return this.#inTurn(async () => {
      if (JSON.stringify(link ?? null) === JSON.stringify(this.#link)) return; // our own
      this.#link = isLink(link, this.world.origins) ? link : null;
      this.#me = null;
      if (this.#kept.pairing === null) await this.#who();
    });
  }

  #inTurn(run: () => Promise<void>): Promise<void> {
    this.#turn = this.#turn
      .then(() => this.ready)
      .then(run)
      .catch((error: unknown) => {
        this.#asked = visible(error instanceof Error ? error.message : String(error));
      })
      .finally(() => this.world.changed());
    return this.#turn;
  }

  async #obey(wanted: Wish): Promise<void> {
    switch (wanted.do) {
      case 'sign-in': return this.#signIn(wanted.link);
      case 'sign-out': return this.#signOut();
      case 'pair': return this.#pair(wanted.session);
      case 'add': return this.#want(wanted.site);
      case 'added': return this.#added(wanted.site, wanted.granted);
      case 'remove': return this.#remove(wanted.site);
      case 'send': return this.#sendNow();
      case 'stop': return this.#stop();
      case 'forget': return this.#forget();
    }
  }

  async #signIn(text: string): Promise<void> {
    const link = readLink(text, this.world.origins);
    if (typeof link === 'string') throw new Error(unusable[link]);
    this.#link = link;
    await this.world.session.set({ [linkAt]: link });
    await this.#who();
  }

  async #signOut(): Promise<void> {
    this.#link = null;
    this.#me = null;
    await this.world.session.remove(linkAt);
  }

  // who asks the control plane which sessions the person has.
  async #who(): Promise<void> {
    const link = this.#link;
    if (link === null || this.#me !== null) return;
    const me = await this.world.control(link.token).me();
    if (this.#link === link) this.#me = me;
  }

  #control(): ControlPlane {
    if (this.#link === null) throw new Error('Sign in first: paste the link of your console.');
    return this.world.control(this.#link.token);
  }

  async #pair(session: string): Promise<void> {
    const { world } = this;
    if (this.#busy !== '' || this.#kept.pairing !== null) return;
    const control = this.#control();
    this.#busy = 'pairing';
    world.changed();
    try {
      const { pairing, key } = await pairWith(control, session, { name: world.name, hostname, label: this.#nameOf(session) }, world.origins, world.now());
      try {
        await world.keys.put(pairing.id, key);
        // Sequences go on: they must never go back, whichever pairing it is.
        this.#kept = { ...this.#kept, pairing, last: null, there: false, problem: '', pace: change({ ...atRest, sequence: this.#kept.pace.sequence }, world.now()) };
        this.#sent = '';
        await this.#save();
      } catch (error) {
        this.#kept.pairing = null;
        await unpair(control, session, pairing.id).catch(() => undefined);
        throw error;
      }
    } finally {
      this.#busy = '';
      this.#arm();
    }
  }

  // want notes a site before Chrome asks: its question may end the popup.
  async #want(site: string): Promise<void> {
    if (!isSite(site)) throw new Error('That is no site.');
    const wanted = await this.#wanted();
    await this.world.session.set({ [wantedAt]: [...wanted.filter((s) => s !== site), site].slice(-mostWanted) });
  }

  async #wanted(): Promise<string[]> {
    const { [wantedAt]: wanted } = await this.world.session.get(wantedAt);
    return (Array.isArray(wanted) ? wanted : []).filter(isSite);
  }

  async #added(site: string, granted: boolean): Promise<void> {
    if (granted) return this.#review();
    await this.world.session.set({ [wantedAt]: (await this.#wanted()).filter((s) => s !== site) });
  }

  // review has sites join that the person wanted and Chrome permits, and those go whose
  // permission she has taken back.
  async #review(): Promise<void> {
    const wanted = await this.#wanted();
    const joined: string[] = [];
    for (const site of wanted) if (await this.world.permitted(site)) joined.push(site);
    const stays = await Promise.all(this.#kept.sites.map(async (s) => ((await this.world.permitted(s.site)) ? s.site : '')));
    if (joined.length > 0) await this.world.session.set({ [wantedAt]: wanted.filter((s) => !joined.includes(s)) });
    const before = this.#kept.sites;
    // A site has what is below it: those needn't be named.
    const sites = before.filter(({ site }) => stays.includes(site) && !joined.some((j) => j !== site && covers(j, site)));
    for (const site of joined) if (!sites.some((s) => covers(s.site, site)) && sites.length < mostSites) sites.push({ site, cookies: 0 });
    if (JSON.stringify(sites) === JSON.stringify(before)) return;
    await this.#list(sites);
  }

  async #list(sites: Kept['sites']): Promise<void> {
    this.#kept.sites = sites;
    this.#kept.pace = change(this.#kept.pace, this.world.now());
    await this.#save();
    this.#arm();
    this.world.changed();
  }

  async #remove(site: string): Promise<void> {
    await this.#list(this.#kept.sites.filter((s) => s.site !== site));
    await this.world.giveBack(site);
  }

  async #sendNow(): Promise<void> {
    if (this.#kept.pairing === null) return;
    this.#sent = '';
    this.#kept.pace = ask(this.#kept.pace, this.world.now());
    await this.#save();
    this.#arm();
  }

  // stop ends the pairing at the sandbox, and then here.
  async #stop(): Promise<void> {
    const { pairing } = this.#kept;
    if (pairing === null || this.#busy === 'stopping') return;
    this.#mayForget = true; // until it has ended
    const control = this.#control();
    this.#busy = 'stopping';
    this.world.changed();
    try {
      await unpair(control, pairing.session, pairing.id);
      await this.#forget();
    } finally {
      this.#busy = '';
    }
  }

  // forget ends it here: the key, the address, and what Chrome has permitted.
  async #forget(): Promise<void> {
    const sites = this.#kept.sites.map(({ site }) => site);
    this.#kept = { pairing: null, sites: [], last: null, there: false, problem: '', pace: { ...atRest, sequence: this.#kept.pace.sequence } };
    this.#sent = '';
    this.#mayForget = false;
    await this.world.keys.clear();
    await this.#save();
    this.#arm();
    for (const site of sites) await this.world.giveBack(site);
    await this.#who().catch(() => undefined); // another sandbox may be next
  }
}

const nameOf = ({ dashboard, id }: Pick<SessionInfo, 'dashboard' | 'id'>): string => visible(dashboard || id);
