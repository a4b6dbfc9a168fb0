// `<grandstand-room>`: a room as an element. Thin: the room is the package's, this draws comments, scores and what there is to say of the
// stream, and has a place to write when there is a token. Styled by parts (`line`, `who`, `score`, `status`, `form`) and by custom properties.
//
//   <grandstand-room url="https://live.example.com" room="lobby"></grandstand-room>
//
// Attributes: `url`, `room`, `token`, `max` (lines shown, 100 when left out). A token that is asked for is set by script: `element.token = async () => …`.
import type { CommentEntry, Entry, RoomOptions } from '@grandstand/client';
import { Room, statusText } from '@grandstand/client';

const STYLE = `
:host { display: grid; grid-template-rows: auto 1fr auto; min-height: 12rem; font: inherit; color: inherit; }
[part=head] { display: flex; flex-wrap: wrap; gap: .2em 1em; justify-content: space-between; }
[part=status] { opacity: .7; font-size: .85em; }
ol { list-style: none; margin: 0; padding: 0; overflow-y: auto; overflow-wrap: anywhere; }
[part=who] { font-weight: 600; margin-inline-end: .5em; unicode-bidi: isolate; }
[part=body] { unicode-bidi: isolate; white-space: pre-line; }
[part~=removed], [part~=note] { opacity: .7; font-style: italic; }
form { display: flex; gap: .5em; } input { flex: 1; min-width: 0; font: inherit; } button { font: inherit; }
[hidden] { display: none; }
`;

function part(tag: string, name: string, text: string): HTMLElement {
  const e = document.createElement(tag);
  e.setAttribute('part', name);
  e.textContent = text;
  return e;
}

export class GrandstandRoom extends HTMLElement {
  static readonly observedAttributes = ['url', 'room'];
  /** As the `token` of a room's options. Set before the element is put into the page. */
  token: RoomOptions['token'] = null;
  /** Other options of the room. Set before the element is put into the page. */
  options: Partial<RoomOptions> = {};
  #room: Room | null = null;
  #lines = new Map<Entry, { line: HTMLElement; version: number }>();
  #list = document.createElement('ol');
  #scores = part('div', 'scores', '');
  #status = part('span', 'status', '');
  #form = document.createElement('form');
  #painting = false;

  constructor() {
    super();
    const root = this.attachShadow({ mode: 'open' });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    const head = part('div', 'head', '');
    this.#status.setAttribute('role', 'status');
    head.append(this.#scores, this.#status);
    this.#list.setAttribute('part', 'feed');
    this.#list.setAttribute('role', 'log');
    this.#list.setAttribute('aria-label', 'Comments');
    this.#list.tabIndex = 0;
    this.#form.setAttribute('part', 'form');
    const input = document.createElement('input');
    input.setAttribute('aria-label', 'Comment');
    input.maxLength = 2000;
    this.#form.append(input, part('button', 'send', 'Send'));
    this.#form.addEventListener('submit', (e) => {
      e.preventDefault();
      const body = input.value.trim();
      if (body === '') return;
      input.value = '';
      this.#room?.publish(body);
    });
    root.append(head, this.#list, this.#form);
  }

  /** The room, for everything that is not drawn here. */
  get room(): Room | null {
    return this.#room;
  }

  connectedCallback(): void {
    this.#open();
  }

  disconnectedCallback(): void {
    this.#close();
  }

  attributeChangedCallback(): void {
    if (!this.isConnected) return;
    this.#close();
    this.#open();
  }

  #open(): void {
    const id = this.getAttribute('room');
    if (!id || this.#room) return;
    const url = this.getAttribute('url');
    const token = this.token ?? this.getAttribute('token');
    const room = new Room({ ...this.options, ...(url && { url }), room: id, token });
    this.#room = room;
    this.#form.hidden = token === null;
    room.on('status', (status) => {
      this.#status.textContent = statusText(status);
      this.dispatchEvent(new CustomEvent('status', { detail: status }));
    });
    room.on('change', () => this.#paintSoon());
    room.start();
  }

  #close(): void {
    this.#room?.stop();
    this.#room = null;
    this.#lines.clear();
    this.#list.replaceChildren();
  }

  #paintSoon(): void {
    if (this.#painting) return;
    this.#painting = true;
    requestAnimationFrame(() => {
      this.#painting = false;
      this.#paint();
    });
  }

  #paint(): void {
    const room = this.#room;
    if (!room) return;
    this.#scores.replaceChildren(...room.store.scores.map((s) => part('span', 'score', `${s.match_id} ${s.score.home}–${s.score.away} ${s.minute ?? ''}`)));
    const { scrollHeight, scrollTop, clientHeight } = this.#list;
    const atEnd = scrollHeight - scrollTop - clientHeight < 48;
    const shown = room.store.entries.slice(-(Number(this.getAttribute('max')) || 100));
    for (const [entry, { line }] of this.#lines) if (!shown.includes(entry)) { line.remove(); this.#lines.delete(entry); }
    let at = this.#list.firstElementChild;
    for (const entry of shown) {
      let known = this.#lines.get(entry);
      if (!known || known.version !== entry.version) {
        const line = draw(entry);
        if (known) { if (at === known.line) at = line; known.line.replaceWith(line); }
        known = { line, version: entry.version };
        this.#lines.set(entry, known);
      }
      if (known.line === at) at = at.nextElementSibling;
      else this.#list.insertBefore(known.line, at);
    }
    if (atEnd) this.#list.scrollTop = this.#list.scrollHeight;
  }
}

function draw(e: Entry): HTMLElement {
  if (e.type === 'comment') return comment(e);
  if (e.type === 'score') return part('li', 'line note', `${e.score.match_id}: ${e.score.kind.replaceAll('_', ' ')} ${e.score.score.home}–${e.score.score.away}`);
  if (e.type === 'gift') return part('li', 'line note', `${e.gift.user.display} sent ${e.gift.count} × ${e.gift.item}`);
  if (e.type === 'skipped') return part('li', 'line note', `${e.count} comments passed over`);
  const { slow_mode_seconds: slow, state } = e.config;
  return part('li', 'line note', slow === undefined ? `The room is ${state}` : slow > 0 ? `Slow mode: ${slow} s` : 'Slow mode is off');
}

function comment(e: CommentEntry): HTMLElement {
  // What was removed leaves its line where it was, with the reason.
  if (e.retracted) return part('li', 'line removed', e.reason ? `Removed: ${e.reason}` : 'Removed');
  const line = part('li', `line${e.mine ? ' mine' : ''}${e.fate ? ` ${e.fate}` : ''}`, '');
  line.append(part('span', 'who', e.user.display || e.user.id), part('span', 'body', e.body));
  if (e.fate === 'refused') line.append(part('span', 'fate', ` (not sent: ${e.reason ?? ''})`));
  return line;
}

if (!customElements.get('grandstand-room')) customElements.define('grandstand-room', GrandstandRoom);
