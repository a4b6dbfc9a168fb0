// Frames of the danmaku in a real browser, beside npm's `danmaku`: what a reader sees at 50 comments a second, and whether the picture
// stands still at 500. The engines take turns, round by round, on the same texts from the same seed.
//
//   node danmaku.cjs ROOT [SECONDS] [ROUNDS]
//
// A frame is what lies between two animation frames of the page; the browser aims at 60 a second. `busy` is the part of the time
// that the page's main thread worked, as the browser counts it, and does not depend on when frames are shown.
const { createRequire } = require('node:module');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const from = createRequire(path.join(process.env.NODE_PATH, 'x.js'));
const { chromium } = from('playwright-core');

const [root, seconds = '20', rounds = '3'] = process.argv.slice(2);
const SECONDS = Number(seconds);
const ROUNDS = Number(rounds);
const RATES = [50, 500];
const STAGE = { width: 1280, height: 720 };
const files = {
  '/ours.js': path.join(root, 'web/pages/assets/danmaku.js'),
  '/peer.js': path.join(process.env.NODE_PATH, 'danmaku/dist/esm/danmaku.js'),
};
const PAGE = '<!doctype html><meta charset="utf-8"><style>body{margin:0;background:#10241b}#stage{position:relative;width:1280px;height:720px;overflow:hidden}#wall{position:absolute;inset:0}</style><div id="stage"><div id="wall"></div></div>';

/** In the page: runs one engine at one rate and gives the times between frames, in ms, with what was shown. */
async function run({ engine, rate, seconds, seed }) {
  const draw = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const one = (list) => list[Math.floor(draw() * list.length)];
  const LATIN = 'what a goal that was offside never in my life come on you reds lol GG WP no way haha keeper asleep again ref blind yes'.split(' ');
  const HAN = [...'進球了太厉害啊哈主場裁判加油不可能这也行'];
  const EMOJI = ['😂', '🔥', '👏🏽', '👨‍👩‍👧‍👦', '🏳️‍🌈', '⚽', '🇧🇷', '❤️'];
  const many = (n, make, glue) => [...Array(n)].map(make).join(glue);
  // As live chats are: three in four Latin, one in five Han, the rest emoji, and one in a hundred from right to left.
  const text = () => {
    const kind = draw();
    if (kind < 0.74) return many(1 + Math.floor(draw() * 7), () => one(LATIN), ' ');
    if (kind < 0.93) return many(2 + Math.floor(draw() * 12), () => one(HAN), '');
    if (kind < 0.99) return many(1 + Math.floor(draw() * 5), () => one(EMOJI), '');
    return 'يا له من هدف رائع';
  };
  const wall = document.getElementById('wall');
  let emit;
  let shown;
  let dropped = () => 0;
  let id = 0;
  if (engine.startsWith('ours')) {
    const { Danmaku } = await import('/ours.js');
    const danmaku = new Danmaku(wall, { drawer: engine.endsWith('dom') ? 'dom' : 'canvas' });
    emit = (said) => danmaku.say({ id: id += 1, text: said });
    shown = () => danmaku.visible;
    dropped = () => danmaku.counts.dropped.comment;
  } else {
    const { default: Peer } = await import('/peer.js');
    const canvas = engine.endsWith('canvas');
    const peer = new Peer({ container: wall, engine: canvas ? 'canvas' : 'dom', comments: [], speed: 160 });
    const style = canvas ? { font: '600 22px system-ui, sans-serif', fillStyle: '#fff', strokeStyle: '#000c', lineWidth: 3 }
      : { font: '600 22px system-ui, sans-serif', color: '#fff', textShadow: '-1px -1px 1px #000c, 1px -1px 1px #000c, -1px 1px 1px #000c, 1px 1px 1px #000c' };
    emit = (said) => peer.emit({ text: said, style });
    shown = () => peer._.runningList.length;
  }
  // A pause first: the module's own compiling is nobody's frame.
  await new Promise((resolve) => { setTimeout(resolve, 500); });
  const frames = [];
  const visible = [];
  const start = performance.now();
  let owed = 0;
  let said = 0;
  let last = null;
  await new Promise((resolve) => {
    const timer = setInterval(() => {
      owed = ((performance.now() - start) / 1000) * rate;
      for (; said < owed; said += 1) emit(text());
    }, 20);
    const frame = (now) => {
      if (last !== null) frames.push(now - last);
      last = now;
      if (frames.length % 30 === 0) visible.push(shown());
      if (now - start < seconds * 1000) requestAnimationFrame(frame);
      else { clearInterval(timer); resolve(); }
    };
    requestAnimationFrame(frame);
  });
  const half = visible.slice(visible.length >> 1);
  return { frames, said, dropped: dropped(), visible: half.reduce((sum, n) => sum + n, 0) / half.length };
}

(async () => {
  const server = http.createServer((request, response) => {
    const file = files[request.url];
    response.setHeader('content-type', file ? 'text/javascript; charset=utf-8' : 'text/html; charset=utf-8');
    response.end(file ? fs.readFileSync(file) : PAGE);
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const url = `http://127.0.0.1:${server.address().port}/`;
  const named = process.env.CHROMIUM;
  const browser = await chromium.launch({
    executablePath: named.includes('/') ? named : `/usr/bin/${named}`,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  const engines = ['ours canvas', 'ours dom', 'peer canvas', 'peer dom'];
  const all = new Map();
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const rate of RATES) {
      for (const engine of engines) {
        const page = await browser.newPage({ viewport: STAGE });
        await page.goto(url);
        const devtools = await page.context().newCDPSession(page);
        await devtools.send('Performance.enable');
        const task = async () => (await devtools.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value;
        const before = await task();
        const began = Date.now();
        const got = await page.evaluate(run, { engine, rate, seconds: SECONDS, seed: 1 + round });
        const busy = (await task() - before) / ((Date.now() - began) / 1000);
        if (round === 0 && process.env.SCREENS) await page.screenshot({ path: path.join(process.env.SCREENS, `bench-${engine.replace(' ', '-')}-${rate}.png`) });
        const key = `${engine} ${rate}`;
        all.set(key, [...(all.get(key) ?? []), { engine, rate, busy, ...got }]);
        console.error(`round ${round + 1}, ${engine}, ${rate}/s: longest ${Math.max(...got.frames).toFixed(0)} ms, busy ${(busy * 100).toFixed(0)} %`);
        await page.context().close();
      }
    }
  }
  console.log(`${browser.version()}, ${STAGE.width}x${STAGE.height}, ${ROUNDS} rounds of ${SECONDS} s each, software raster, ${os.cpus().length} cores, load ${os.loadavg()[0].toFixed(1)}`);
  console.log('| comments/s | engine | frames/s | median | 99 % | longest | over 50 ms | main thread busy | shown at once | dropped |');
  console.log('|---|---|---|---|---|---|---|---|---|---|');
  for (const rate of RATES) {
    for (const engine of engines) {
      const runs = all.get(`${engine} ${rate}`);
      const frames = runs.flatMap((r) => r.frames).sort((a, b) => a - b);
      const at = (part) => frames[Math.min(frames.length - 1, Math.floor(frames.length * part))].toFixed(1);
      const mean = (of) => runs.reduce((sum, r) => sum + of(r), 0) / runs.length;
      const perSecond = (frames.length * 1000) / frames.reduce((sum, f) => sum + f, 0);
      const name = engine.startsWith('ours') ? `this, ${engine.slice(5)}` : `npm danmaku, ${engine.slice(5)}`;
      console.log(`| ${rate} | ${name} | ${perSecond.toFixed(1)} | ${at(0.5)} ms | ${at(0.99)} ms | ${at(1)} ms | ${frames.filter((f) => f > 50).length} of ${frames.length} | ${(mean((r) => r.busy) * 100).toFixed(0)} % | ${mean((r) => r.visible).toFixed(0)} | ${(mean((r) => r.dropped / r.said) * 100).toFixed(0)} % |`);
    }
  }
  await browser.close();
  server.close();
})();
