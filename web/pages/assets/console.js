// The console's shell: who is signed in, which view is open, and the keys. Text is always text: nothing here makes markup of a string.

import { Acts } from './console-acts.js';
import { AccessView } from './console-access.js';
import { Api } from './console-api.js';
import { BansView } from './console-bans.js';
import { AuditView, BannersView, GatewaysView } from './console-desk.js';
import { rights as rightsOf, shortcut } from './console-model.js';
import { RoomView } from './console-room.js';
import { RoomsView } from './console-rooms.js';
import { claim, h } from './words.js';

const KEPT = 'grandstand.console.token';
const el = (id) => document.getElementById(id);
const [view, nav, who, leave, help, enter, note] = ['view', 'nav', 'who', 'leave', 'help', 'enter', 'enter-note'].map(el);
const acts = new Acts(el('said'));
/** Measurements by room, kept while the tab lives. */
const histories = new Map();

/** Views by the first part of the hash: name in the menu, whom it is for, and what shows it. */
const VIEWS = {
  rooms: { name: 'Rooms', for: (r) => r.moderates, open: (given) => new RoomsView(given) },
  room: { for: (r) => r.moderates, open: (given) => new RoomView(given) },
  bans: { name: 'Bans', for: (r) => r.operates, open: (given) => new BansView(given) },
  access: { name: 'Access', for: (r) => r.operates, open: (given) => new AccessView(given) },
  banners: { name: 'Banners', for: (r) => r.operates, open: (given) => new BannersView(given) },
  gateways: { name: 'Gateways', for: (r) => r.operates, open: (given) => new GatewaysView(given) },
  audit: { name: 'Audit', for: (r) => r.moderates, open: (given) => new AuditView(given) },
};

let api = null;
let rights = null;
let open = null;

function say(text, kind) {
  note.textContent = text;
  if (kind) note.dataset.kind = kind; else delete note.dataset.kind;
}

function signOut(why) {
  sessionStorage.removeItem(KEPT);
  open?.stop();
  for (const dialog of document.querySelectorAll('dialog')) dialog.close();
  [api, rights, open] = [null, null, null];
  for (const e of [nav, who, leave, help]) e.hidden = true;
  acts.undos = [];
  acts.paint();
  document.title = 'Console · Grandstand';
  view.replaceChildren(enter);
  say(why ?? '', why ? 'bad' : undefined);
  el('enter-token').value = '';
  el('enter-token').focus();
}

async function signIn(token) {
  const mine = new Api(token, () => { if (api === mine) signOut('The token does not hold any more. Sign in again.'); });
  const claims = Object.fromEntries(['sub', 'name', 'roles', 'rooms', 'exp'].map((key) => [key, claim(token, key)]));
  // The server decides, by the first thing that every operator may ask.
  await mine.rooms({ limit: 1 });
  await mine.learn();
  api = mine;
  rights = rightsOf(claims);
  sessionStorage.setItem(KEPT, token);
  who.textContent = `${claims.name ?? rights.user} · ${rights.roles.filter((r) => ['room-mod', 'region-ops', 'admin', 'backend'].includes(r)).join(', ')}`;
  who.title = rights.rooms ? `Rooms: ${rights.rooms.join(', ')}` : 'Every room';
  nav.replaceChildren(...Object.entries(VIEWS).filter(([, v]) => v.name && v.for(rights)).map(([key, v]) => h('a', { href: `#/${key}`, 'data-view': key }, v.name)));
  for (const e of [nav, who, leave, help]) e.hidden = false;
  enter.remove();
  go();
}

/** Opens what the hash names. */
function go() {
  if (!api) return;
  const [key, ...rest] = location.hash.replace(/^#\//, '').split('/');
  const wanted = VIEWS[key]?.for(rights) ? key : 'rooms';
  let id = '';
  try { id = decodeURIComponent(rest.join('/')); } catch { /* no room has such a name */ }
  if (wanted === 'room' && id === '') { location.replace('#/rooms'); return; }
  open?.stop();
  const root = h('div', { class: `view view-${wanted}` });
  const fault = h('p', { class: 'fault', role: 'alert', hidden: true });
  view.replaceChildren(fault, root);
  const faulted = (refused) => {
    fault.hidden = refused === null;
    fault.textContent = refused === null ? '' : refused.message;
  };
  for (const a of nav.children) {
    if (a.dataset.view === wanted || (wanted === 'room' && a.dataset.view === 'rooms')) a.setAttribute('aria-current', 'page'); else a.removeAttribute('aria-current');
  }
  document.title = `${VIEWS[wanted].name ?? id} · Console`;
  open = VIEWS[wanted].open({ api, root, acts, rights, faulted, histories, id, go: (to) => { location.hash = to; } });
}

function showKeys() {
  const general = [['z', 'undo the newest that can be undone'], ['?', 'these keys']];
  const dialog = h('dialog', { 'aria-labelledby': 'keys-title' }, h('form', { method: 'dialog', class: 'ask' }, h('h2', { id: 'keys-title' }, 'Keys'),
    h('dl', { class: 'keys' }, [...(open?.keys() ?? []), ...general].map(([key, what]) => h('div', {}, h('dt', {}, key.split(' / ').map((k) => h('kbd', {}, k))), h('dd', {}, what)))),
    h('div', { class: 'row ends' }, h('button', { type: 'submit', class: 'primary' }, 'Close'))));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener('keydown', (event) => {
  if (!api || document.querySelector('dialog[open]')) return;
  const key = shortcut(event);
  if (key === null) return;
  if (key === '?') showKeys();
  else if (key === 'z') acts.undo();
  else if (!open?.key(key)) return;
  event.preventDefault();
});

enter.addEventListener('submit', async (event) => {
  event.preventDefault();
  const token = el('enter-token').value.trim();
  say('Signing in…');
  try {
    await signIn(token);
    say('');
  } catch (refused) {
    say(refused.status === 403 ? 'This token opens nothing here: it has no role that moderates or operates.' : refused.message, 'bad');
  }
});
leave.addEventListener('click', () => signOut());
help.addEventListener('click', showKeys);
addEventListener('hashchange', go);

const kept = sessionStorage.getItem(KEPT);
if (kept) {
  try {
    await signIn(kept);
  } catch (refused) {
    signOut(refused.message);
  }
}
