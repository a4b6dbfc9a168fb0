// The client package in Node against the real binary, on every rung: over a server that is stopped and one that is killed it hears each
// comment once, its own is in the room once, and a resume that comes too late is made good by a snapshot.
//
//   node sdk.mjs BINARY DIST     (NODE_PATH: where `ws` is; Node 20 has no WebSocket of its own)
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const [binary, dist] = process.argv.slice(2);
const { Room } = await import(pathToFileURL(path.join(dist, 'index.js')));
const WebSocket = globalThis.WebSocket ?? createRequire(path.join(process.env.NODE_PATH, 'x.js'))('ws');
const LIMIT_MS = 60_000;
const data = fs.mkdtempSync(path.join(os.tmpdir(), 'grandstand-sdk-'));
let server;
let url;

async function start() {
  server = spawn(binary, ['serve', '--data', data, '--listen', url ? new URL(url).host : '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'ignore'] });
  for await (const line of readline.createInterface({ input: server.stdout })) {
    if (line.startsWith('ready ')) { url = line.split(' ')[1].trim(); return; }
  }
  throw new Error('the server did not become ready');
}

async function end(signal) {
  const ended = new Promise((resolve) => { server.on('exit', resolve); });
  server.kill(signal);
  await ended;
}

function check(truth, what) {
  if (!truth) throw new Error(what);
}

async function until(holds, what) {
  const deadline = Date.now() + LIMIT_MS;
  while (!holds()) {
    check(Date.now() < deadline, `not in time: ${what()}`);
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
}

let key = 0;
async function say(room, body, token) {
  const answer = await fetch(`${url}/v1/rooms/${room}/comments`, {
    method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` }, body: JSON.stringify({ client_msg_id: `k${(key += 1)}`, body }),
  });
  check(answer.ok, `publish: ${answer.status} ${await answer.text()}`);
}

await start();
const tokenOf = (sub, role) => spawnSync(binary, ['token', '--data', data, '--sub', sub, '--role', role], { encoding: 'utf8' }).stdout.trim();
const backend = tokenOf('backend', 'backend');
let failed = 0;
for (const rung of ['websocket', 'sse', 'poll']) {
  const began = Date.now();
  const id = `node-${rung}`;
  const heard = [];
  const reports = [];
  const wanted = [];
  const room = new Room({ url, room: id, rungs: [rung], token: async () => tokenOf('nora', 'publisher'), env: { WebSocket } });
  try {
    await say(id, 'before', backend);
    room.on('event', (e) => { if (e.type === 'comment') heard.push(e.body); });
    room.on('report', (r) => reports.push(r));
    room.start();
    await until(() => room.status.state === 'live', () => JSON.stringify(room.status));
    check(room.store.entries.some((e) => e.body === 'before'), 'the snapshot is shown');
    for (const signal of ['SIGTERM', 'SIGKILL']) {
      for (let n = 0; n < 5; n += 1) {
        wanted.push(`${signal} ${n}`);
        await say(id, `${signal} ${n}`, backend);
      }
      await until(() => heard.length === wanted.length, () => `${heard}`);
      await end(signal);
      // Said while nobody is there to take it.
      room.publish(`own ${signal}`);
      wanted.push(`own ${signal}`);
      await start();
      await until(() => heard.length === wanted.length, () => `${heard} ${JSON.stringify(room.status)}`);
    }
    check(JSON.stringify(heard) === JSON.stringify(wanted), `heard ${heard}`);
    const own = room.store.entries.filter((e) => e.mine).map((e) => [e.body, e.fate]);
    check(JSON.stringify(own) === '[["own SIGTERM","sent"],["own SIGKILL","sent"]]', JSON.stringify(own));
    check(reports.length === 0, JSON.stringify(reports));
    check(room.user.id === 'nora', 'whom the token names');
    room.like();
    await until(() => room.store.counters.likes.like === 1, () => JSON.stringify(room.store.counters));
    console.log(`ok   ${rung} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  } catch (fault) {
    failed += 1;
    console.log(`FAIL ${rung}: ${fault.stack}`);
  } finally {
    room.stop();
  }
}
await end('SIGTERM');
fs.rmSync(data, { recursive: true, force: true });
console.log(failed ? `${failed} failed` : 'all rungs passed');
process.exit(failed ? 1 : 0);
