// Headless Chromium on the embedded pages: two readers talk, one loses its network and misses nothing, and what a person
// sees is right on a phone and a desktop, in light and dark. Screenshots go to target/screens.
const { spawn, spawnSync } = require('node:child_process');
const { createRequire } = require('node:module');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');
const from = createRequire(path.join(process.env.NODE_PATH, 'x.js'));
const { chromium } = from('playwright-core');

const binary = path.resolve(process.argv[2]);
const root = path.resolve(__dirname, '../..');
const screens = path.join(root, 'target/screens');
const LIMIT_MS = 30_000;

const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

function check(truth, what) {
  if (!truth) throw new Error(what);
}

async function serve(data, args = ['--listen', '127.0.0.1:0']) {
  const server = spawn(binary, ['serve', '--data', data, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of readline.createInterface({ input: server.stdout })) {
    if (line.startsWith('ready ')) return { server, url: line.split(' ')[1].trim() };
  }
  throw new Error('the server did not become ready');
}

/** The exit code of a server that was asked to end. */
async function stop(server) {
  const ended = new Promise((resolve) => { server.on('exit', resolve); });
  server.kill('SIGTERM');
  return ended;
}

/** A server for `run` alone. `args`: what it is started with beside its address, given the folder in which its files are. */
async function alone(args, run) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'grandstand-alone-'));
  const data = path.join(folder, 'data');
  const { server, url } = await serve(data, ['--listen', '127.0.0.1:0', ...args(folder).flatMap((setting) => ['--set', setting])]);
  try {
    await run({ url, data, ...operator(url, token(data, 'operator', 'admin')) });
  } finally {
    await stop(server);
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** Ports that were free a moment ago. */
async function freePorts(n) {
  const servers = await Promise.all([...Array(n)].map(() => new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => resolve(server));
  })));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => { server.close(resolve); })));
  return ports;
}

function token(data, sub, role, rooms = []) {
  const args = ['token', '--data', data, '--sub', sub, '--role', role, ...rooms.flatMap((room) => ['--rooms', room])];
  return spawnSync(binary, args, { encoding: 'utf8' }).stdout.trim();
}

/** A page that fails the test on any console error or page error. */
async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 760 }, ...options });
  const page = await context.newPage();
  page.faults = [];
  page.on('pageerror', (e) => page.faults.push(String(e)));
  page.on('console', (m) => {
    // A refused fetch or a cut network is logged by the browser itself; scripts and the policy must be silent.
    if (m.type() === 'error' && !/Failed to load resource|ERR_INTERNET_DISCONNECTED|WebSocket connection to/.test(m.text())) page.faults.push(m.text());
  });
  page.setDefaultTimeout(LIMIT_MS);
  await page.goto(url);
  return page;
}

const live = (page) => page.waitForFunction(() => document.getElementById('state').dataset.state === 'live');
const say = async (page, text) => { await page.fill('#composer-text', text); await page.press('#composer-text', 'Enter'); };
const bodies = (page) => page.$$eval('#feed li:not(.event)', (items) => items.map((li) => li.textContent));
const shows = (page, text) => page.waitForFunction(
  (wanted) => [...document.querySelectorAll('#feed li')].some((li) => li.textContent.includes(wanted)), text);
const { allNamed, call, noSideways } = require('./desk.cjs')({ open, check, live });

/** What an operator does to rooms; `admin`: its token. */
function operator(url, admin) {
  return {
    admin,
    async put(room, change) {
      const { status, body } = await call(url, 'PUT', `/admin/rooms/${room}`, admin, { justification: 'browser test', ...change });
      check(status < 300, `room put: ${status} ${JSON.stringify(body)}`);
    },
    /** Puts a banner up and gives its id, or takes the one with this id down. */
    async banner(change, id) {
      const { status, body } = await call(url, id ? 'DELETE' : 'POST', `/admin/banners${id ? `/${id}` : ''}`, admin, { justification: 'browser test', ...change });
      check(status < 300, `banner: ${status}`);
      return body.banner_id;
    },
  };
}

const tests = {
  async 'two pages talk to each other'({ browser, url }) {
    const [a, b] = await Promise.all([open(browser, `${url}/rooms/talk`), open(browser, `${url}/rooms/talk`)]);
    await Promise.all([live(a), live(b)]);
    await a.fill('#composer-name', 'North Stand');
    await say(a, 'hello from the north <b>not bold</b> <img src=x onerror=alert(1)>');
    await shows(b, 'hello from the north <b>not bold</b> <img src=x onerror=alert(1)>');
    await live(a);
    await b.fill('#composer-name', 'South Stand');
    await say(b, 'and from the south 👨‍👩‍👧‍👦 مرحبا');
    await shows(a, 'and from the south 👨‍👩‍👧‍👦 مرحبا');
    check(await a.$('#feed img') === null && await b.$('#feed b') === null, 'text became markup');
    await a.waitForFunction(() => document.querySelector('#feed .mine .fate')?.textContent === 'sent');
    const once = (await bodies(a)).filter((t) => t.includes('hello from the north')).length;
    check(once === 1, `the author sees the own comment ${once} times`);
    check(a.faults.length === 0 && b.faults.length === 0, `page faults: ${a.faults} ${b.faults}`);
    await Promise.all([a.context().close(), b.context().close()]);
  },

  async 'a page that finds rubbish where it kept a guest asks for a name'({ browser, url }) {
    const page = await open(browser, `${url}/rooms/rubbish`);
    for (const rubbish of ['{broken', '7', '[]', '{"token":5,"expires":9e15}', '{"token":"a.b.c","expires":1}']) {
      await page.evaluate((text) => localStorage.setItem('grandstand.guest', text), rubbish);
      await page.reload();
      await live(page);
      check(await page.isVisible('#name-row'), `${rubbish} is taken for a guest`);
    }
    check(page.faults.length === 0, `page faults: ${page.faults}`);
    await page.context().close();
  },

  async 'likes of one page are totals on all of them'({ browser, url }) {
    const [a, b] = await Promise.all([open(browser, `${url}/rooms/liked`), open(browser, `${url}/rooms/liked`)]);
    await Promise.all([live(a), live(b)]);
    await a.click('#like');
    await a.waitForFunction(() => document.getElementById('composer-note').textContent === 'Choose a name first.');
    await a.fill('#composer-name', 'Fan');
    const guests = [];
    a.on('request', (request) => { if (request.url().endsWith('/v1/guest')) guests.push(request); });
    for (let n = 0; n < 7; n += 1) await a.click('#like');
    const likes = (page, n) => page.waitForFunction((n) => document.getElementById('likes').textContent === n, n);
    await Promise.all([likes(a, '7'), likes(b, '7')]);
    check(!await a.isVisible('#name-row') && await a.textContent('#composer-note') === '', 'the guest is still asked for a name');
    check(guests.length === 1, `${guests.length} guests were made for one name`);
    await b.waitForFunction(() => document.getElementById('watching').textContent === '2 watching');
    await b.reload();
    await likes(b, '7');
    const isGone = () => [...document.querySelectorAll('[hidden]')].every((e) => getComputedStyle(e).display === 'none');
    check(await a.evaluate(isGone), 'something hidden is shown');
    await a.screenshot({ path: path.join(screens, 'likes.png') });
    check(a.faults.length === 0 && b.faults.length === 0, `page faults: ${a.faults} ${b.faults}`);
    await Promise.all([a.context().close(), b.context().close()]);
  },

  async 'a reader who loses the network misses nothing'({ browser, url, post }) {
    const page = await open(browser, `${url}/rooms/cut`);
    await live(page);
    for (let n = 0; n < 5; n += 1) await post('cut', `before ${n}`);
    await shows(page, 'before 4');
    await page.context().setOffline(true);
    await page.waitForFunction(() => document.getElementById('state').dataset.state !== 'live');
    for (let n = 0; n < 40; n += 1) await post('cut', `during ${n}`);
    await page.context().setOffline(false);
    await live(page);
    await post('cut', 'after');
    await shows(page, 'after');
    const seen = await bodies(page);
    const wanted = [...Array(5).keys()].map((n) => `before ${n}`).concat([...Array(40).keys()].map((n) => `during ${n}`), 'after');
    check(seen.length === wanted.length && wanted.every((w, n) => seen[n].endsWith(w)), `seen: ${JSON.stringify(seen)}`);
    check(page.faults.length === 0, `page faults: ${page.faults}`);
    await page.context().close();
  },

  async 'a dead edge of the WebSocket is passed by, a living one is used'({ browser }) {
    const [dead, own, edge] = await freePorts(3);
    for (const [listens, told] of [[[], dead], [['--set', `transport.websocket.listen=127.0.0.1:${edge}`], edge]]) {
      const data = fs.mkdtempSync(path.join(os.tmpdir(), 'grandstand-browser-'));
      const { server, url } = await serve(data, ['--listen', `127.0.0.1:${own}`, '--set', `public_url=http://127.0.0.1:${own}`,
        '--set', `transport.websocket.url=ws://127.0.0.1:${told}`, ...listens]);
      const page = await open(browser, `about:blank`);
      const opened = [];
      page.on('websocket', (socket) => opened.push(new URL(socket.url()).port));
      // The first visit makes the room, the second has a snapshot that tells the address.
      await page.goto(`${url}/rooms/edge`);
      await live(page);
      opened.length = 0;
      await page.reload();
      await live(page);
      const wanted = told === dead ? [dead, own] : [edge];
      check(JSON.stringify(opened) === JSON.stringify(wanted.map(String)), `sockets to ${opened}, not to ${wanted}`);
      check(page.faults.length === 0, `page faults: ${page.faults}`);
      await page.context().close();
      server.kill('SIGKILL');
      await new Promise((resolve) => { server.on('exit', resolve); });
      fs.rmSync(data, { recursive: true, force: true });
    }
  },

  async 'refusals are told with their reason'({ browser, url, put }) {
    await put('slow', { slow_mode_seconds: 30, title: 'Slow room' });
    const page = await open(browser, `${url}/rooms/slow`);
    await live(page);
    await page.fill('#composer-name', 'Hasty');
    await say(page, 'first');
    await page.waitForFunction(() => [...document.querySelectorAll('#feed .mine')].some((li) => li.textContent.includes('sent')));
    await say(page, 'second, at once');
    await page.waitForFunction(() => /slow mode, try again in \d+ s/.test(document.querySelector('#feed .refused')?.textContent ?? ''));
    check((await page.title()).startsWith('Slow room'), 'the title of the room');
    await page.context().close();
  },

  async 'the reader who scrolled up is left in peace'({ browser, url, post }) {
    const page = await open(browser, `${url}/rooms/scroll`);
    await live(page);
    for (let n = 0; n < 60; n += 1) await post('scroll', `line ${n}`);
    await shows(page, 'line 59');
    const atEnd = () => page.$eval('#feed', (f) => f.scrollHeight - f.scrollTop - f.clientHeight < 48);
    check(await atEnd(), 'pinned to the bottom');
    await page.$eval('#feed', (f) => { f.scrollTop = 0; });
    await page.waitForFunction(() => document.getElementById('feed').scrollTop === 0);
    await post('scroll', 'a new one');
    await page.waitForFunction(() => /^1 new$/.test(document.getElementById('pill').textContent) && !document.getElementById('pill').hidden);
    check(await page.$eval('#feed', (f) => f.scrollTop) < 30, 'the picture jumped');
    await page.click('#pill');
    check(await atEnd(), 'the pill leads to the newest');
    await page.context().close();
  },

  async 'gifts are counted up on their line and a banner hangs until it is taken down'({ browser, url, put, give, banner }) {
    await put('shop', { banner_items: ['rocket'], banner_seconds: 600, title: 'The shop' });
    const page = await open(browser, `${url}/rooms/shop`);
    await live(page);
    const shown = (wanted) => page.waitForFunction((text) => [...document.querySelectorAll('#feed .gift')].some((li) => li.textContent.includes(text)), wanted);
    await give('shop', { user: { id: 'ann', name: 'Ann' }, item: 'rose', count: 1, amount_micros: 990_000, currency: 'EUR' });
    await shown('Ann sent rose ×1');
    for (let n = 0; n < 5; n += 1) await give('shop', { user: { id: 'ann', name: 'Ann' }, item: 'rose', count: 2, amount_micros: 1_980_000, currency: 'EUR' });
    await shown('Ann sent rose ×11');
    check(await page.$$eval('#feed .gift', (all) => all.length) === 1, 'a combo is one line');
    await give('shop', { user: { id: 'bo', name: '<b>Bo</b>' }, item: 'rocket', count: 3, amount_micros: 60_000_000, currency: 'gold_seed' });
    await page.waitForFunction(() => !document.getElementById('banners').hidden && document.getElementById('banners').textContent.includes('<b>Bo</b> · 3 × rocket'));
    // Another room's reader sees it too, and is led to where it came from.
    const other = await open(browser, `${url}/rooms/elsewhere`, { viewport: { width: 390, height: 780 }, deviceScaleFactor: 2, colorScheme: 'dark' });
    await live(other);
    await other.waitForFunction(() => document.querySelector('#banners a')?.textContent === 'shop');
    const id = await banner({ body: 'The final starts at 20:00', seconds: 600 });
    const leads = (p, text) => p.waitForFunction((wanted) => document.querySelector('#banners .banner-text')?.textContent === wanted, text);
    await Promise.all([leads(page, 'The final starts at 20:00'), leads(other, 'The final starts at 20:00')]);
    check(await page.$eval('#banners .more', (e) => e.textContent) === '+1', 'the other one is counted');
    await page.screenshot({ path: path.join(screens, 'gifts-desktop-light.png') });
    await other.screenshot({ path: path.join(screens, 'gifts-phone-dark.png') });
    check(await noSideways(other), 'the banner scrolls sideways');
    await banner(null, id);
    await Promise.all([leads(page, '<b>Bo</b> · 3 × rocket'), leads(other, '<b>Bo</b> · 3 × rocket')]);
    check(await page.$('#banners b') === null, 'a name became markup');
    check(page.faults.length === 0 && other.faults.length === 0, `page faults: ${page.faults} ${other.faults}`);
    await Promise.all([page.context().close(), other.context().close()]);
  },

  async 'the demo room lives, by keyboard alone, on phone and desktop, light and dark'({ browser, url }) {
    const page = await open(browser, `${url}/`);
    await page.focus('#demo-start');
    await page.screenshot({ path: path.join(screens, 'lobby-desktop-light.png') });
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/rooms\//);
    await live(page);
    await page.waitForFunction(() => document.querySelectorAll('#feed li').length >= 12 && !document.getElementById('scores').hidden);
    const room = page.url();
    await page.screenshot({ path: path.join(screens, 'room-desktop-light.png') });
    check(page.faults.length === 0, `page faults: ${page.faults}`);
    for (const [name, options] of [
      ['room-desktop-dark', { colorScheme: 'dark' }],
      ['room-phone-light', { viewport: { width: 390, height: 780 }, deviceScaleFactor: 2 }],
      ['room-phone-dark', { viewport: { width: 390, height: 780 }, deviceScaleFactor: 2, colorScheme: 'dark' }],
    ]) {
      const other = await open(browser, room, options);
      await live(other);
      await other.waitForFunction(() => document.querySelectorAll('#feed li').length >= 5);
      check(await noSideways(other), `${name} scrolls sideways`);
      await other.screenshot({ path: path.join(screens, `${name}.png`) });
      await other.context().close();
    }
    // Reachable in order by Tab, each with a name a screen reader can say.
    check(await allNamed(page), 'a control has no name');
    await page.context().close();
  },

  // Over HTTP/1.1 a browser opens six connections to a host and no more: the seventh stream would wait for ever.
  async 'twelve event streams of one page share a connection beside a WebSocket'({ browser }) {
    const certified = (folder) => {
      const [certificate, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
      const made = spawnSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '30', '-subj',
        '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', key, '-out', certificate]);
      check(made.status === 0, `openssl: ${made.stderr}`);
      return [`tls.certificate=${certificate}`, `tls.key=${key}`, 'http2=true'];
    };
    await alone(certified, async ({ url, data }) => {
      const page = await open(browser, `${url}/`, { ignoreHTTPSErrors: true });
      const backend = token(data, 'backend', 'backend');
      const heard = await page.evaluate(async ([backend, limit]) => {
        const late = new Promise((_, reject) => setTimeout(() => reject(new Error('not all were heard in time')), limit));
        const opened = (source) => new Promise((resolve) => source.addEventListener('hello', resolve, { once: true }));
        const comment = (source) => new Promise((resolve) => source.addEventListener('comment', (e) => resolve(JSON.parse(e.data).body), { once: true }));
        const sources = [...Array(12)].map(() => new EventSource('/v1/rooms/two/sse'));
        const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/v1/rooms/two/stream`);
        const events = [];
        const bySocket = new Promise((resolve) => socket.addEventListener('message', (e) => {
          events.push(...[JSON.parse(e.data)].flat());
          const found = events.find((event) => event.type === 'comment');
          if (found) resolve(found.body);
        }));
        await Promise.race([late, Promise.all([...sources.map(opened), new Promise((resolve) => socket.addEventListener('open', resolve))])]);
        const said = Promise.all([bySocket, ...sources.map(comment)]);
        const answer = await fetch('/v1/rooms/two/comments', {
          method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${backend}` }, body: JSON.stringify({ client_msg_id: 'k', body: 'to all' }),
        });
        if (!answer.ok) throw new Error(await answer.text());
        const bodies = await Promise.race([late, said]);
        const protocol = performance.getEntriesByType('navigation')[0].nextHopProtocol;
        const metrics = await (await fetch('/metrics')).text();
        return { bodies, protocol, connections: metrics.match(/protocol_connections{protocol="http2"} (\d+)/)[1] };
      }, [backend, LIMIT_MS]);
      check(heard.protocol === 'h2' && heard.connections === '1', `by ${heard.protocol}, ${heard.connections} connections`);
      check(heard.bodies.length === 13 && heard.bodies.every((body) => body === 'to all'), `heard ${heard.bodies}`);
      check(page.faults.length === 0, `the console: ${page.faults}`);
      await page.context().close();
    });
  },
};

Object.assign(tests, require('./answers.cjs')({ open, check, live, say, shows, screens, token }));
Object.assign(tests, require('./console.cjs')({ open, check, live, shows, screens, token }));
Object.assign(tests, require('./moderation.cjs')({ open, check, live, shows, screens, token, alone }));
Object.assign(tests, require('./doors.cjs')({ open, check, serve, stop, token, freePorts }));
Object.assign(tests, require('./sdk.cjs')({ open, check, screens, token }));
Object.assign(tests, require('./tokens.cjs')({ open, check, live, token, alone }));
Object.assign(tests, require('./scores.cjs')({ open, check, live, screens, token, alone }));
Object.assign(tests, require('./walls.cjs')({ open, check, live, say, shows, screens, token }));
Object.assign(tests, require('./frames.cjs')({ open, check, live, shows, screens, token, alone }));
Object.assign(tests, require('./texts.cjs')({ open, check, live, screens }));
Object.assign(tests, require('./players.cjs')({ open, check, screens, token, binary, modules: process.env.NODE_PATH }));

(async () => {
  fs.mkdirSync(screens, { recursive: true });
  const data = fs.mkdtempSync(path.join(os.tmpdir(), 'grandstand-browser-'));
  const { server, url } = await serve(data);
  const backend = token(data, 'backend', 'backend');
  const { put, banner } = operator(url, token(data, 'operator', 'admin'));
  let key = 0;
  /** Says something, as a user where one is given, and gives the answer, which has this status. */
  const postAs = async (room, as, text, wanted = 200) => {
    const { status, body } = await call(url, 'POST', `/v1/rooms/${room}/comments`, backend, { client_msg_id: `b${key += 1}`, body: text, as });
    check(status === wanted, `publish as ${as?.id}: ${status} ${JSON.stringify(body)}`);
    return body;
  };
  const post = (room, text) => postAs(room, undefined, text);
  const give = async (room, gift) => {
    const { status, body } = await call(url, 'POST', `/v1/rooms/${room}/gifts`, backend, { gift_id: `g${key += 1}`, ...gift });
    check(status < 300, `gift: ${status} ${JSON.stringify(body)}`);
  };
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM.includes('/') ? process.env.CHROMIUM : `/usr/bin/${process.env.CHROMIUM}`, args: flags });
  let failed = 0;
  // A part of a name on the command line runs those alone.
  const wanted = Object.entries(tests).filter(([name]) => name.includes(process.argv[3] ?? ''));
  for (const [name, test] of wanted) {
    const start = Date.now();
    try {
      await test({ browser, url, data, post, postAs, put, give, banner });
      console.log(`ok   ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
    } catch (fault) {
      failed += 1;
      console.log(`FAIL ${name}: ${fault.stack}`);
    }
  }
  await browser.close();
  if (await stop(server) !== 0) { console.log('FAIL the server did not exit with 0'); failed += 1; }
  fs.rmSync(data, { recursive: true, force: true });
  console.log(`${wanted.length - Math.min(failed, wanted.length)} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
})();
