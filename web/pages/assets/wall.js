// The wall over the video area: what the stream says is handed to the danmaku as it comes. Only what is new flies; what the page
// begins with, and whatever there was no room for, is in the list of comments.

import { Danmaku } from './danmaku.js';
import { keep, kept } from './kept.js';
import { scoreLine, shownAs } from './words.js';

const KEPT = 'grandstand.danmaku';
/** Own comments whose answer is waited for: the wall needs no more than it shows. */
const OWN_MAX = 64;

/**
 * The wall of a room page, with its switch; without an element for it, one that does nothing. `room`: of the client package,
 * whose store was told each event before the wall is.
 */
export function roomWall(room) {
  const [stage, over, toggle] = ['stage', 'wall', 'wall-toggle'].map((id) => document.getElementById(id));
  if (!over) return { event() {}, own() {} };
  const danmaku = new Danmaku(over);
  let on = kept(KEPT) !== 'off';
  let last = 0;
  /** What is known of own comments, by their keys. */
  const own = new Map();

  function show() {
    stage.hidden = !on;
    toggle.setAttribute('aria-pressed', String(on));
    if (on) danmaku.start();
    else danmaku.stop();
  }
  toggle.addEventListener('click', () => { on = !on; keep(KEPT, on ? 'on' : 'off'); show(); });
  show();

  function comment(e) {
    const known = e.client_msg_id === undefined ? undefined : own.get(e.client_msg_id);
    // The reader's own is flying already.
    if (known) { known.id = e.event_id; return; }
    if (room.store.isRetracted(e.event_id)) return;
    const text = e.repeats > 0 ? `${e.body} ×${e.repeats + 1}` : e.body;
    const about = { comment: true, id: e.event_id, user: e.user?.id, ts: Date.parse(e.ts) };
    danmaku.say({ id: e.event_id, text, own: e.client_msg_id !== undefined, about });
  }

  function gift(e) {
    const text = `${shownAs(e.user, 'Someone')} · ${e.item} ×${e.count ?? 1}`;
    danmaku.give({ id: `gift ${e.combo_id ?? e.event_id}`, item: e.item, count: e.count ?? 1, text });
  }

  function score(e) {
    if (e.historical || e.superseded) return;
    danmaku.say({ id: e.event_id, text: `${e.match_id} · ${scoreLine(e)}`, mode: 'top' });
  }

  function retract(e) {
    const since = e.since_ts === undefined ? -Infinity : Date.parse(e.since_ts);
    const target = e.target_event_id;
    danmaku.retract((about) => about?.comment === true && (e.all === true
      || (target !== undefined && (about.id === target || about.raw === target))
      || (e.user_id !== undefined && about.user === e.user_id && about.ts >= since)), e.reason);
  }

  function refused(key) {
    const known = own.get(key);
    // After an answer that decides nothing it is sent again.
    if (!known || room.store.entries.find((e) => e.clientMsgId === key)?.fate !== 'refused') return;
    own.delete(key);
    danmaku.retract((about) => about === known, 'not sent');
  }

  return {
    /** An event of the stream, in its order. */
    event(e) {
      const isNews = ['comment', 'gift', 'gift_combo', 'score_event', 'retract'].includes(e.type);
      if (isNews) {
        if (e.event_id <= last) return;
        last = e.event_id;
      }
      switch (e.type) {
        case 'comment': comment(e); break;
        case 'gift': case 'gift_combo': gift(e); break;
        case 'score_event': score(e); break;
        case 'retract': retract(e); break;
        case 'publish_ack': case 'publish_commit': {
          const known = own.get(e.client_msg_id);
          if (known) { known.id ??= e.event_id; known.raw ??= e.raw_id; }
          break;
        }
        case 'rate_limited': case 'moderation_failed': case 'error': refused(e.client_msg_id); break;
        default:
      }
    },
    /** The reader says this, under this key. */
    own(key, user, body) {
      const about = { comment: true, user, ts: Date.now() };
      if (!danmaku.say({ id: `own ${key}`, text: body, own: true, about })) return;
      own.set(key, about);
      if (own.size > OWN_MAX) own.delete(own.keys().next().value);
    },
  };
}
