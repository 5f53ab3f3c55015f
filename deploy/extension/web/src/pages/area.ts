// A storage area of Chrome's, as the cores see it. Storage is the only memory that
// lasts: the worker ends after half a minute.

export interface Area {
  get(keys: string | string[] | null): Promise<Record<string, unknown>>;
  set(items: Record<string, unknown>): Promise<void>;
  remove(keys: string | string[]): Promise<void>;
}
