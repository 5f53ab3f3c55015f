// What this part uses of Chrome's API beside what the others use.

declare namespace chrome {
  namespace cookies {
    interface Cookie {
      domain: string; // with a leading dot unless hostOnly
      hostOnly: boolean;
      name: string;
      value: string;
      path: string;
      secure: boolean;
      httpOnly: boolean;
      sameSite: string; // 'no_restriction', 'lax', 'strict', 'unspecified'
      session: boolean;
      expirationDate?: number; // seconds since 1970, with a fraction; none of a session
      storeId?: string;
      partitionKey?: { topLevelSite?: string };
    }
    function getAll(about: { domain: string; storeId: string; partitionKey: object }): Promise<Cookie[]>;
    const onChanged: Event<(change: { cookie: Cookie }) => void>;
  }

  namespace permissions {
    function contains(what: { origins: string[] }): Promise<boolean>;
    function request(what: { origins: string[] }): Promise<boolean>;
    function remove(what: { origins: string[] }): Promise<boolean>;
    const onAdded: Event<() => void>;
    const onRemoved: Event<() => void>;
  }
}
