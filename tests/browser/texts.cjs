// Unicode's own examples, through the server and into the document: every emoji sequence there is, and bidirectional text. What is
// right is worked out here from the rule as docs/protocol.md writes it, not by the server's code.
const fs = require('node:fs');
const path = require('node:path');

/** Lines of BidiCharacterTest: the hand-made ones at its beginning, and of the rest every so-manieth. */
const BIDI_LINES = 500;
const BIDI_FIRST = 100;
/** Below the 2 000 bytes and 500 characters of a comment. */
const BYTES = 1900;
const SEQUENCES = 240;
/** Comments that page and overlay hold at once. */
const BATCH = 90;

const characters = (codes) => codes.trim().split(/\s+/).map((code) => String.fromCodePoint(parseInt(code, 16))).join('');
const lines = (file) => fs.readFileSync(path.join(process.env.UNICODE, file), 'utf8').split('\n').map((l) => l.replace(/#.*/, '').trim()).filter((l) => l !== '');

/** What the rule leaves of a text; `null`: it is refused. */
function left(text) {
  if (/\p{Cc}/u.test(text.replaceAll('\n', ''))) return null;
  return text.replace(/\p{Bidi_Control}/gu, '').normalize('NFC') || null;
}

module.exports = ({ open, check, live, screens }) => {
  const { close } = require('./desk.cjs')({ open, check, live });

  return {
    async 'every emoji sequence and bidirectional text reach page and overlay as the text rule leaves them'({ browser, url, postAs, put }) {
      await put('unicode', { title: 'Unicode', merge_ms: 0 });
      const sequences = lines('emoji/emoji-test.txt').map((l) => characters(l.split(';')[0]));
      check(sequences.length > 4500, `${sequences.length} sequences`);
      const texts = [];
      let packed = [];
      for (const sequence of sequences) {
        if (packed.length >= SEQUENCES || Buffer.byteLength([...packed, sequence].join(' ')) > BYTES) { texts.push(packed.join(' ')); packed = []; }
        packed.push(sequence);
      }
      texts.push(packed.join(' '));
      const nEmoji = texts.length;
      check(texts.every((t) => left(t) === t), 'the rule changes no emoji');
      const bidi = lines('BidiCharacterTest.txt').map((l) => characters(l.split(';')[0]));
      const step = Math.floor((bidi.length - BIDI_FIRST) / (BIDI_LINES - BIDI_FIRST));
      texts.push(...bidi.slice(0, BIDI_FIRST), ...bidi.slice(BIDI_FIRST).filter((_, n) => n % step === 0).slice(0, BIDI_LINES - BIDI_FIRST));
      check(texts.length === nEmoji + BIDI_LINES, `${texts.length - nEmoji} bidirectional lines`);

      const page = await open(browser, `${url}/rooms/unicode`);
      const overlay = await open(browser, `${url}/overlay/unicode?max=100`);
      await live(page);
      await overlay.waitForFunction(() => document.body.dataset.state === 'live');
      const seen = { changed: 0, refused: 0, shown: 0 };
      const wanted = texts.map((text, n) => ({ name: `text ${n}`, text, left: left(text) }));
      for (let at = 0; at < wanted.length; at += BATCH) {
        const batch = wanted.slice(at, at + BATCH);
        for (const { name, text, left: kept } of batch) {
          const answer = await postAs('unicode', { id: name.replace(' ', '-'), name }, text, kept === null ? 422 : 200);
          if (kept === null) { check(answer.code === 'bad_text', `${name}: ${answer.code}`); seen.refused += 1; } else seen.shown += 1;
          if (kept !== null && kept !== text) seen.changed += 1;
        }
        const shown = batch.filter((t) => t.left !== null);
        const last = shown.at(-1).name;
        const onPage = page.waitForFunction((who) => [...document.querySelectorAll('#feed .who')].some((w) => w.textContent === who), last)
          .then(() => page.$$eval('#feed li', (all) => all.map((li) => [li.querySelector('.who').textContent, li.querySelector('bdi').textContent])));
        const onOverlay = overlay.waitForFunction((who) => [...document.querySelectorAll('.gs-name')].some((w) => w.textContent === who), last)
          .then(() => overlay.$$eval('.gs-comment', (all) => all.map((li) => [li.querySelector('.gs-name').textContent, li.querySelector('.gs-body').textContent])));
        for (const [where, found] of [['page', new Map(await onPage)], ['overlay', new Map(await onOverlay)]]) {
          for (const t of shown) check(found.get(t.name) === t.left, `${t.name} on the ${where}: ${JSON.stringify(found.get(t.name))}, not ${JSON.stringify(t.left)}`);
        }
        if (at === 0) await page.screenshot({ path: path.join(screens, 'texts-emoji.png') });
      }
      await page.screenshot({ path: path.join(screens, 'texts-bidi.png') });
      console.log(`     ${sequences.length} sequences in ${nEmoji} comments, ${BIDI_LINES} lines: ${seen.shown} shown, ${seen.changed} without their controls, ${seen.refused} refused`);
      check(seen.changed > 50 && seen.refused > 0, 'some lines hold what the rule takes out, some what it refuses');
      await close(page, overlay);
    },
  };
};
