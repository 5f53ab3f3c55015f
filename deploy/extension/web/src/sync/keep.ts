// Where the key of the pairing is: in IndexedDB, which keeps it as one that seals and
// can't be read. storage.local would want its bytes.

const database = 'sync';
const store = 'keys';
const only = 'key';

export interface KeyStore {
  get(pairing: string): Promise<CryptoKey | undefined>;
  put(pairing: string, key: CryptoKey): Promise<void>;
  clear(): Promise<void>;
}

interface Kept {
  pairing: string;
  key: CryptoKey;
}

function open(): Promise<IDBDatabase> {
  const request = indexedDB.open(database, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(store);
  return result(request);
}

const result = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('IndexedDB'));
  });

async function within<T>(mode: IDBTransactionMode, run: (keys: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const db = await open();
  try {
    const transaction = db.transaction(store, mode, { durability: 'strict' });
    const written = new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error ?? new Error('IndexedDB'));
    });
    const [value] = await Promise.all([result(run(transaction.objectStore(store))), written]);
    return value;
  } finally {
    db.close();
  }
}

export const keyStore: KeyStore = {
  async get(pairing) {
    const kept = (await within('readonly', (keys) => keys.get(only) as IDBRequest<Kept | undefined>)) ?? undefined;
    return kept?.pairing === pairing ? kept.key : undefined;
  },
  async put(pairing, key) {
    await within('readwrite', (keys) => keys.put({ pairing, key } satisfies Kept, only));
  },
  async clear() {
    await within('readwrite', (keys) => keys.clear());
  },
};
