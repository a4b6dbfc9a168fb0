// The console's only way to the server: its API, with the operator's token as a bearer and never in an address.

/** A refusal as the server words it (RFC 9457), or that no answer came (`status` 0). */
export class Refused extends Error {
  constructor(status, body, fallback) {
    const fields = (body?.fields ?? []).map((f) => `${f.field}: ${f.rule}`);
    super([body?.detail ?? body?.title ?? fallback, ...(fields.length > 1 || (body?.fields ?? []).some((f) => !(body.detail ?? '').includes(f.field)) ? fields : [])].join(' · '));
    this.status = status;
    this.code = body?.code;
    this.retryAfterMs = body?.retry_after_ms;
  }
}

const match = (id) => `/admin/matches/${encodeURIComponent(id)}`;
const room = (id) => `/admin/rooms/${encodeURIComponent(id)}`;

export class Api {
  /** `refused()` is called when the token does not hold any more. */
  constructor(token, refused) {
    this.token = token;
    this.refused = refused;
    /** Paths of the server's own description, so that nothing is offered that it does not have. */
    this.paths = {};
    this.schemas = {};
  }

  /** Errors: `Refused`. */
  async fetch(method, path, body, headers = {}) {
    let response;
    try {
      response = await fetch(path, {
        method,
        cache: 'no-store',
        headers: { authorization: `Bearer ${this.token}`, ...(body ? { 'content-type': 'application/json' } : {}), ...headers },
        body: body ? JSON.stringify(body) : undefined,
      });
    } catch {
      throw new Refused(0, null, 'the server cannot be reached');
    }
    if (response.ok) return response;
    const told = await response.json().catch(() => null);
    if (response.status === 401) this.refused();
    throw new Refused(response.status, told, `HTTP ${response.status}`);
  }

  async json(method, path, body, headers) {
    return (await this.fetch(method, path, body, headers)).json();
  }

  async learn() {
    const description = await this.json('GET', '/openapi.json');
    this.paths = description.paths ?? {};
    this.schemas = description.components?.schemas ?? {};
  }

  /** The values a setting of a room may have, where the description counts them. */
  choices(setting) { return this.schemas.RoomChange?.properties?.[setting]?.enum?.filter((name) => name !== null) ?? []; }

  /** The kinds of score events that may be typed. */
  kinds() { return this.paths['/admin/matches/{match}/scores']?.post?.requestBody?.content?.['application/json']?.schema?.properties?.kind?.enum?.filter((name) => name !== null) ?? []; }

  /** Whether the server has this route. */
  has(path, method) { return this.paths[path]?.[method] !== undefined; }

  rooms(query) { return this.json('GET', `/admin/rooms?${new URLSearchParams(query)}`); }
  room(id) { return this.json('GET', room(id)); }
  put(id, change, version) { return this.json('PUT', room(id), change, version === undefined ? {} : { 'if-match': `"${version}"` }); }
  moderate(id, what, body) { return this.json('POST', `${room(id)}/${what}`, body); }
  bans(id) { return this.json('GET', `${room(id)}/bans`); }
  held(id) { return this.json('GET', `${room(id)}/held`); }
  decide(id, held, body) { return this.json('POST', `${room(id)}/held/${encodeURIComponent(held)}`, body); }
  reports(id) { return this.json('GET', `${room(id)}/reports`); }
  unpin(id, body) { return this.json('DELETE', `${room(id)}/pin`, body); }
  siteBans(query) { return this.json('GET', `/admin/bans?${new URLSearchParams(query)}`); }
  siteBan(body) { return this.json('POST', '/admin/bans', body); }
  siteUnban(user, justification) { return this.json('DELETE', '/admin/bans', { user_id: user, justification }); }
  erase(user, justification) { return this.json('DELETE', `/admin/users/${encodeURIComponent(user)}`, { justification }); }
  access() { return this.json('GET', '/admin/access'); }
  revoke(body) { return this.json('POST', '/admin/access/revocations', body); }
  restore(body) { return this.json('DELETE', '/admin/access/revocations', body); }
  outage(body) { return this.json('PUT', '/admin/access/outage', body); }
  endOutage(justification) { return this.json('DELETE', '/admin/access/outage', { justification }); }
  unban(id, user, justification) { return this.json('DELETE', `${room(id)}/bans/${encodeURIComponent(user)}`, { justification }); }
  banners() { return this.json('GET', '/admin/banners'); }
  banner(body) { return this.json('POST', '/admin/banners', body); }
  endBanner(id, justification) { return this.json('DELETE', `/admin/banners/${encodeURIComponent(id)}`, { justification }); }
  gateways() { return this.json('GET', '/admin/gateways'); }
  gateway(id, what, body) { return this.json('POST', `/admin/gateways/${encodeURIComponent(id)}/${what}`, body); }
  audit(query) { return this.json('GET', `/admin/audit?${new URLSearchParams(query)}`); }
  match(id) { return this.json('GET', `${match(id)}/providers`); }
  setProviders(id, body) { return this.json('PUT', `${match(id)}/providers`, body); }
  scores(id, query) { return this.json('GET', `${match(id)}/scores?${new URLSearchParams(query)}`); }
  typeScore(id, body) { return this.json('POST', `${match(id)}/scores`, body); }
  history(id, query) { return this.json('GET', `${room(id)}/history?${new URLSearchParams(query)}`); }
  snapshot(id, query = '') { return this.json('GET', `/v1/rooms/${encodeURIComponent(id)}/snapshot${query}`); }
}
