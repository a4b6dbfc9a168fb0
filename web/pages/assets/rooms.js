// The lobby: which rooms there are, and the button that fills one with a synthetic match.

const list = document.getElementById('rooms');
const note = document.getElementById('rooms-note');
const start = document.getElementById('demo-start');
const demoNote = document.getElementById('demo-note');

const roomUrl = (id) => `/rooms/${encodeURIComponent(id)}`;

/** The `detail` or `title` of an RFC 9457 answer, else the status. */
async function problem(response) {
  try {
    const body = await response.json();
    return body.detail ?? body.title ?? `HTTP ${response.status}`;
  } catch {
    return `HTTP ${response.status}`;
  }
}

function row(room) {
  const item = document.createElement('li');
  const link = document.createElement('a');
  link.href = roomUrl(room.room_id);
  const title = document.createElement('span');
  title.className = 'room-title';
  title.textContent = room.title || room.room_id;
  const facts = document.createElement('span');
  facts.className = 'room-facts';
  facts.textContent = [room.state, room.viewers === undefined ? null : `${room.viewers} watching`].filter(Boolean).join(' · ');
  link.append(title, facts);
  item.append(link);
  return item;
}

async function refresh() {
  try {
    const response = await fetch('/v1/rooms', { cache: 'no-store' });
    if (!response.ok) throw new Error(await problem(response));
    const { rooms } = await response.json();
    list.replaceChildren(...rooms.map(row));
    note.textContent = rooms.length === 0 ? 'No room yet. A room appears with its first comment.' : '';
    delete note.dataset.kind;
  } catch (fault) {
    note.textContent = `The list could not be loaded: ${fault.message}`;
    note.dataset.kind = 'bad';
  }
}

start.addEventListener('click', async () => {
  start.disabled = true;
  demoNote.textContent = 'Starting…';
  try {
    const response = await fetch('/v1/demo', { method: 'POST' });
    if (!response.ok) throw new Error(await problem(response));
    const { room_id: id } = await response.json();
    location.assign(roomUrl(id));
  } catch (fault) {
    demoNote.textContent = `No demo room: ${fault.message}`;
    demoNote.dataset.kind = 'bad';
    start.disabled = false;
  }
});

document.getElementById('open').addEventListener('submit', (event) => {
  event.preventDefault();
  location.assign(roomUrl(new FormData(event.target).get('room')));
});

await refresh();
setInterval(() => { if (!document.hidden) void refresh(); }, 5000);
