// The client package in Chromium against the real server, over networks that are cut, delayed, half-open or closed to one transport: no
// event is missed or told twice on any rung, and tabs share one stream.
const fs = require('node:fs');
const path = require('node:path');
const network = require('./network.cjs');

const RUNGS = ['websocket', 'sse', 'poll'];

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, screens, token }) => {
  /** A room in the page; what it hears is in `seen`. `speed`: its clock runs so many times as fast, so that nobody waits for silence. */
  const watch = (page, room, options = {}, speed = 1) => page.evaluate(async ([id, given, times]) => {
    const { Room } = await import('/assets/grandstand-client.js');
    const mark = { at: Date.now(), is: Date.now(), times };
    const now = () => mark.at + (Date.now() - mark.is) * mark.times;
    window.hurry = (faster) => Object.assign(mark, { at: now(), is: Date.now(), times: faster });
    const env = times === 1 ? {} : { now, timer: (fire, ms) => setTimeout(fire, ms / mark.times) };
    window.seen = [];
    window.states = [];
    window.room = new Room({ room: id, share: false, env, ...given });
    window.room.on('event', (e) => { if (e.type === 'comment') window.seen.push(e.body); });
    window.room.on('status', (status) => { window.states.push(status.state); });
    window.room.start();
  }, [room, options, speed]);
  const live = (page, way) => page.waitForFunction((wanted) => window.room.status.state === 'live' && (!wanted || window.room.status.way === wanted), way);
  const heard = (page, body) => page.waitForFunction((wanted) => window.seen.includes(wanted), body);
  const exactly = async (page, wanted, what) => {
    const seen = await page.evaluate(() => window.seen);
    check(JSON.stringify(seen) === JSON.stringify(wanted), `${what}: heard ${JSON.stringify(seen)}`);
    const shown = await page.evaluate(() => window.room.store.entries.filter((e) => e.type === 'comment').map((e) => e.body));
    check(JSON.stringify(shown) === JSON.stringify(wanted), `${what}: shown ${JSON.stringify(shown)}`);
  };
  const tests = {};

  for (const rung of RUNGS) {
    tests[`sdk: ${rung} over a network that is cut, slow and half-open misses nothing`] = async ({ browser, url, post }) => {
      const room = `sdk-${rung}`;
      const between = await network(url);
      const page = await open(browser, `${between.url}/`);
      const wanted = [];
      const say = async (body) => { wanted.push(body); await post(room, body); };
      // Eight times as fast: silence is noticed after five seconds. Something is said twice a second, so that SSE is not silent.
      await watch(page, room, { rungs: [rung] }, 8);
      await live(page, rung);
      for (let n = 0; n < 5; n += 1) await say(`calm ${n}`);
      await heard(page, 'calm 4');

      between.reset();
      for (let n = 0; n < 5; n += 1) await say(`cut ${n}`);
      await heard(page, 'cut 4');

      between.set(rung, { delay: 400 });
      for (let n = 0; n < 5; n += 1) await say(`slow ${n}`);
      await heard(page, 'slow 4');
      between.set(rung, 'pass');

      // Bytes go nowhere and nobody says so; later connections are let through.
      await live(page, rung);
      const before = (await page.evaluate(() => window.states)).length;
      between.set(rung, 'hold');
      for (let n = 0; n < 5; n += 1) await say(`half ${n}`);
      await page.waitForFunction((n) => window.states.slice(n).some((state) => ['waiting', 'trouble'].includes(state)), before);
      between.set(rung, 'pass');
      await heard(page, 'half 4');
      await say('last');
      await heard(page, 'last');
      await exactly(page, wanted, rung);
      check(page.faults.length === 0, `page faults: ${page.faults}`);
      await page.context().close();
      between.close();
    };
  }

  tests['sdk: what blocks one transport is gone around, and the way back up is found'] = async ({ browser, url, post }) => {
    const between = await network(url);
    const page = await open(browser, `${between.url}/`);
    const wanted = [];
    const say = async (room, body) => { wanted.push(body); await post(room, body); };
    for (const [how, blocked, left] of [['block', ['websocket'], 'sse'], ['cut', ['websocket', 'sse'], 'poll'], ['block', ['sse', 'poll'], 'websocket']]) {
      wanted.length = 0;
      const room = `sdk-around-${left}`;
      for (const way of RUNGS) between.set(way, blocked.includes(way) ? how : 'pass');
      await page.evaluate(() => { window.room?.stop(); localStorage.clear(); });
      await watch(page, room, {}, 5);
      await live(page, left);
      for (let n = 0; n < 5; n += 1) await say(room, `${left} ${n}`);
      await heard(page, `${left} 4`);
      await exactly(page, wanted, `${blocked} blocked`);
      if (left !== 'poll') continue;
      // The network is well again: the ladder looks up after five of its minutes, which are fifteen seconds here.
      for (const way of RUNGS) between.set(way, 'pass');
      await page.evaluate(() => window.hurry(20));
      for (let n = 0; await page.evaluate(() => window.room.status.way) !== 'websocket'; n += 1) {
        await say(room, `climbing ${n}`);
        await page.waitForFunction((last) => window.seen.includes(last), `climbing ${n}`);
        await new Promise((resolve) => { setTimeout(resolve, 300); });
      }
      await say(room, 'at the top');
      await heard(page, 'at the top');
      await exactly(page, wanted, 'the climb');
    }
    check(page.faults.length === 0, `page faults: ${page.faults}`);
    await page.context().close();
    between.close();
  };

  tests['sdk: a comment is in the room once, whatever swallowed its answer'] = async ({ browser, url }) => {
    const between = await network(url);
    const page = await open(browser, `${between.url}/`);
    for (const rung of RUNGS) {
      const room = `sdk-own-${rung}`;
      await page.evaluate(async () => {
        window.room?.stop();
        const answer = await fetch('/v1/guest', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"name":"Own"}' });
        window.token = (await answer.json()).token;
      });
      const token = await page.evaluate(() => window.token);
      await watch(page, room, { rungs: [rung], token }, 8);
      await live(page, rung);
      // It is sent, and nothing comes back; then the connection is gone.
      between.set(rung === 'websocket' ? 'websocket' : 'api', 'hold');
      await page.evaluate(() => { window.key = window.room.publish('said once'); });
      await new Promise((resolve) => { setTimeout(resolve, 500); });
      between.reset();
      between.set(rung === 'websocket' ? 'websocket' : 'api', 'pass');
      await page.waitForFunction(() => window.room.store.entries.some((e) => e.body === 'said once' && e.fate === 'sent' && e.id !== undefined));
      const times = await page.evaluate(() => window.room.store.entries.filter((e) => e.body === 'said once').length);
      check(times === 1, `${rung}: ${times} times`);
      const { recent_comments: logged } = await (await fetch(`${url}/v1/rooms/${room}/snapshot?min=0`)).json();
      check(logged.filter((c) => c.body === 'said once').length === 1, `${rung}: in the log ${JSON.stringify(logged)}`);
    }
    await page.context().close();
    between.close();
  };

  tests['sdk: a page that is loaded anew goes on where it was'] = async ({ browser, url, post }) => {
    const page = await open(browser, `${url}/`);
    const room = 'sdk-reload';
    await watch(page, room);
    await live(page);
    await post(room, 'before');
    await heard(page, 'before');
    await page.waitForFunction(() => Object.keys(localStorage).some((key) => key.startsWith('grandstand.cursor ')));
    await page.evaluate(() => window.room.stop());
    // More than a snapshot holds.
    for (let n = 0; n < 60; n += 1) await post(room, `away ${n}`);
    await page.reload();
    await watch(page, room);
    await heard(page, 'away 59');
    // Some of them are in the snapshot, all of them come on the stream: each is one line.
    const shown = await page.evaluate(() => window.room.store.entries.map((e) => e.body));
    const away = [...Array(60).keys()].map((n) => `away ${n}`);
    check(JSON.stringify(shown.slice(-60)) === JSON.stringify(away), `${shown.length} lines: ${shown}`);
    const seen = await page.evaluate(() => window.seen);
    // A cache may have an older snapshot, and then the stream begins there: what is before comes again to the new page.
    check(JSON.stringify(seen.slice(-60)) === JSON.stringify(away) && new Set(seen).size === seen.length, `heard ${seen}`);
    await page.context().close();
  };

  tests['sdk: twelve tabs share one poll, eight one SSE stream, and another takes over'] = async ({ browser, url, post }) => {
    for (const [rung, n, most] of [['poll', 12, 2], ['sse', 8, 1]]) {
      const between = await network(url);
      const room = `sdk-tabs-${rung}`;
      const context = await browser.newContext();
      const pages = [];
      for (let i = 0; i < n; i += 1) {
        const page = await context.newPage();
        page.setDefaultTimeout(30_000);
        await page.goto(`${between.url}/`);
        // Headless pages are all in front; each is a tab of the same browser.
        await watch(page, room, { rungs: [rung], share: true });
        pages.push(page);
      }
      for (const page of pages) await live(page);
      for (let i = 0; i < 5; i += 1) await post(room, `to all ${i}`);
      for (const page of pages) await heard(page, 'to all 4');
      const ways = await Promise.all(pages.map((page) => page.evaluate(() => window.room.status.way)));
      check(ways.filter((way) => way === rung).length === 1, `ways: ${ways}`);
      check(between.open(rung) <= most, `${between.open(rung)} streams for ${n} tabs`);
      // The page's own requests have a connection left.
      const status = await pages[n - 1].evaluate(async () => (await fetch('/v1/rooms')).status);
      check(status === 200, `the page is answered ${status}`);
      // The one that leads is closed while something is said.
      const leader = ways.indexOf(rung);
      const closing = pages[leader].close();
      for (let i = 0; i < 5; i += 1) await post(room, `handed over ${i}`);
      await closing;
      const others = pages.filter((_, i) => i !== leader);
      for (const page of others) await heard(page, 'handed over 4');
      for (const page of others) {
        const seen = await page.evaluate(() => window.seen);
        const wanted = ['to all', 'handed over'].flatMap((what) => [...Array(5).keys()].map((i) => `${what} ${i}`));
        check(JSON.stringify(seen) === JSON.stringify(wanted), `a tab heard ${JSON.stringify(seen)}`);
      }
      check(between.open(rung) <= most, `${between.open(rung)} streams after the hand-over`);
      await context.close();
      between.close();
    }
  };

  /** A page of somebody's own, on the server's address, so that nothing but its text is in the way. */
  const foreign = async (browser, url, html) => {
    const context = await browser.newContext({ viewport: { width: 480, height: 640 } });
    await context.route('**/somebody.html', (route) => route.fulfill({ contentType: 'text/html; charset=utf-8', body: `<!doctype html><html lang="en"><title>x</title>${html}` }));
    const page = await context.newPage();
    page.setDefaultTimeout(30_000);
    await page.goto(`${url}/somebody.html`);
    return page;
  };

  tests['sdk: the ten lines of the docs are a room on a page'] = async ({ browser, url, post }) => {
    const docs = fs.readFileSync(path.join(__dirname, '../../docs/embed.md'), 'utf8');
    const html = docs.split('```html\n')[1].split('```')[0];
    check(html.trim().split('\n').length <= 11, 'ten lines and what is around them');
    await post('lobby', 'said <b>before</b>');
    const page = await foreign(browser, url, html.replaceAll('http://127.0.0.1:8080', url));
    await page.waitForFunction(() => document.title === 'Live' && document.getElementById('feed').textContent.includes('backend: said <b>before</b>'));
    await post('lobby', 'said after');
    await page.waitForFunction(() => document.querySelector('#feed li:last-child')?.textContent === 'backend: said after');
    await page.context().close();
  };

  tests['sdk: a room is an element; a removed comment leaves its line where it was'] = async ({ browser, url, data, post, postAs }) => {
    const room = 'sdk-element';
    for (const body of ['first', 'second <i>with marks</i>']) await post(room, body);
    const gone = await postAs(room, { id: 'rude', name: 'Rude' }, 'to be removed');
    await post(room, 'last');
    const writer = token(data, 'wanda', 'publisher');
    const page = await foreign(browser, url, `<grandstand-room room="${room}" token="${writer}" style="height: 20rem"></grandstand-room>
      <script type="module" src="${url}/assets/grandstand-room.js"></script>`);
    const lines = () => page.$$eval('grandstand-room', ([e]) => [...e.shadowRoot.querySelectorAll('li')].map((li) => li.textContent));
    const shows = (wanted) => page.waitForFunction((text) => JSON.stringify([...document.querySelector('grandstand-room').shadowRoot.querySelectorAll('li')].map((li) => li.textContent)) === text, JSON.stringify(wanted));
    await shows(['backendfirst', 'backendsecond <i>with marks</i>', 'Rudeto be removed', 'backendlast']);
    check(await page.$eval('grandstand-room', (e) => e.shadowRoot.querySelector('li i')) === null, 'text became markup');
    const answer = await fetch(`${url}/admin/rooms/${room}/retract`, {
      method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${token(data, 'mod', 'admin')}` },
      body: JSON.stringify({ event_id: gone.event_id, reason: 'rude', justification: 'browser test' }),
    });
    check(answer.ok, `retract: ${answer.status}`);
    await page.waitForFunction(() => document.querySelector('grandstand-room').shadowRoot.querySelectorAll('li')[2].textContent.startsWith('Removed'));
    await page.locator('grandstand-room input').fill('from the element');
    await page.locator('grandstand-room input').press('Enter');
    await page.waitForFunction(() => document.querySelector('grandstand-room').shadowRoot.querySelector('li[part~=sent]')?.textContent.endsWith('from the element'));
    check((await lines()).length === 5, `${await lines()}`);
    await page.screenshot({ path: path.join(screens, 'element.png') });
    await page.context().close();
  };

  return tests;
};
