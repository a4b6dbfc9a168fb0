// The README's picture: a room page with a match, comments over the video, gifts and a banner, all said through a real server.
//
//   node picture.cjs BINARY FILE
const { spawn, spawnSync } = require('node:child_process');
const { createRequire } = require('node:module');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');
const from = createRequire(path.join(process.env.NODE_PATH, 'x.js'));
const { chromium } = from('playwright-core');

const [binary, file] = process.argv.slice(2);
const ROOM = 'final-night';
const SAID = [
  ['mia', 'Mia', 'here we go!'], ['omar', 'عمر', 'يا رب اليوم'], ['lin', '林', '开始了开始了'], ['kim', '지민', '오늘은 이긴다'], ['sam', 'Sam', 'keeper looks nervous'],
  ['yuki', 'ゆき', 'がんばれ！'], ['noa', 'נועה', 'איזה אווירה'], ['ravi', 'Ravi', 'क्या माहौल है'], ['lou', 'Lou', 'what a pass 👏🏽👏🏽'], ['ida', 'Ida', 'GOOOOAL 🎉'],
  ['lin', '林', '进球了！太厉害了'], ['omar', 'عمر', 'يا له من هدف رائع'], ['zoe', 'Zoë', 'the whole family is up 👨‍👩‍👧‍👦'], ['sam', 'Sam', 'was that offside?'], ['mia', 'Mia', 'never in a million years'],
  ['yuki', 'ゆき', 'すごいゴール 🔥🔥'], ['kim', '지민', '와 대박'], ['noa', 'נועה', 'שער ענק'], ['bo', 'Bo', 'watching from the bus, no sound, still screaming'], ['ravi', 'Ravi', 'गोल!!! 🏳️‍🌈'],
  ['lou', 'Lou', 'VAR is checking…'], ['ida', 'Ida', 'please no'], ['zoe', 'Zoë', 'stands! it stands!'],
];

(async () => {
  const data = fs.mkdtempSync(path.join(os.tmpdir(), 'grandstand-picture-'));
  const server = spawn(binary, ['serve', '--data', data, '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  let url;
  for await (const line of readline.createInterface({ input: server.stdout })) {
    if (line.startsWith('ready ')) { url = line.split(' ')[1].trim(); break; }
  }
  const token = (role) => spawnSync(binary, ['token', '--data', data, '--sub', role, '--role', role], { encoding: 'utf8' }).stdout.trim();
  const [backend, admin] = [token('backend'), token('admin')];
  let key = 0;
  const call = async (method, where, secret, body) => {
    const response = await fetch(url + where, { method, headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${where}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  const justification = 'picture';
  await call('PUT', `/admin/rooms/${ROOM}`, admin, { title: 'Cup final', matches: ['north-south'], banner_items: ['rocket'], banner_seconds: 600, justification });
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM.includes('/') ? process.env.CHROMIUM : `/usr/bin/${process.env.CHROMIUM}`, args: ['--no-sandbox', '--disable-gpu', '--no-first-run'] });
  const page = await browser.newPage({ viewport: { width: 1000, height: 760 }, deviceScaleFactor: 1.5, colorScheme: 'light' });
  await page.goto(`${url}/rooms/${ROOM}`);
  await page.waitForFunction(() => document.getElementById('state').dataset.state === 'live');
  for (const [n, [id, name, body]] of SAID.entries()) {
    await call('POST', `/v1/rooms/${ROOM}/comments`, backend, { client_msg_id: `p${key += 1}`, body, as: { id, name } });
    await page.waitForFunction((text) => document.getElementById('feed').textContent.includes(text), body);
    if (n === 8) {
      const goal = { kind: 'goal', score: { home: 1, away: 0 }, minute: '78', justification };
      const { confirm } = await call('POST', '/admin/matches/north-south/scores', admin, goal);
      await call('POST', '/admin/matches/north-south/scores', admin, { ...goal, confirm });
    }
    if (n === 10) await call('POST', `/v1/rooms/${ROOM}/gifts`, backend, { gift_id: 'a', user: { id: 'ann', name: 'Ann' }, item: 'rocket', count: 3, amount_micros: 30_000_000, currency: 'EUR' });
    if (n === 16) await call('POST', `/v1/rooms/${ROOM}/gifts`, backend, { gift_id: 'b', user: { id: 'bo', name: 'Bo' }, item: 'scarf', count: 1, amount_micros: 2_000_000, currency: 'EUR' });
    // Spread over the width of the wall, as an evening does it; nothing depends on it but the looks.
    await page.waitForTimeout(200);
  }
  await call('POST', `/v1/rooms/${ROOM}/likes`, backend, { n: 42 });
  await page.waitForFunction(() => document.getElementById('likes').textContent === '42');
  await page.screenshot({ path: file });
  await browser.close();
  const ended = new Promise((resolve) => { server.on('exit', resolve); });
  server.kill('SIGTERM');
  await ended;
  fs.rmSync(data, { recursive: true, force: true });
  console.log(`wrote ${file}`);
})();
