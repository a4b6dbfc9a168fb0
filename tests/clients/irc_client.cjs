// npm `tmi.js` and `dank-twitch-irc`, unmodified, against the real server: read, write, moderate, and come back after a restart.
const { createRequire } = require('node:module');
const path = require('node:path');
const from = createRequire(path.join(process.env.NODE_PATH, 'x.js'));
const tmi = from('tmi.js');
const { ChatClient } = from('dank-twitch-irc');
const readline = require('node:readline');

const [tcp, websocket, moderator, viewer] = process.argv.slice(2);
const CHANNEL = 'irc_room';
const LIMIT_MS = 30_000;
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function check(truth, what) {
  if (!truth) { console.log(`FAIL ${what}`); process.exit(1); }
}

/** What `emitter` says of `name` that `wanted` accepts, as its arguments. */
function heard(emitter, name, wanted = () => true) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => check(false, `nothing of ${name}`), LIMIT_MS);
    const listen = (...args) => {
      if (!wanted(...args)) return;
      clearTimeout(timer);
      emitter.removeListener(name, listen);
      resolve(args);
    };
    emitter.on(name, listen);
  });
}

/** tmi.js folds a token to lower case, which hex survives. */
const folded = (token) => Buffer.from(token).toString('hex');

function twitch(options) {
  return new tmi.Client({
    options: { skipUpdatingEmotesets: true },
    connection: { server: '127.0.0.1', port: Number(websocket), secure: false, reconnect: true, reconnectInterval: 100 },
    logger: { info() {}, warn(text) { check(!/Could not parse/.test(text), text); }, error() {} },
    ...options,
  });
}

(async () => {
  // Its promises wait as long as a busy machine may take.
  const patient = (client) => { client.currentLatency = LIMIT_MS; return client; };
  const mod = twitch({ identity: { username: 'mod', password: `oauth:${folded(moderator)}` } });
  const guest = twitch({ channels: [CHANNEL] });
  [mod, guest].forEach(patient);
  await Promise.all([mod.connect(), guest.connect(), heard(guest, 'join')]);
  check(/^justinfan\d+$/.test(guest.getUsername()), `a guest is ${guest.getUsername()}`);
  const state = heard(mod, 'roomstate');
  check((await mod.join(CHANNEL))[0] === `#${CHANNEL}`, 'join is answered');
  check((await state)[1]['room-id'] === CHANNEL, 'roomstate has its room');
  check(mod.isMod(CHANNEL, 'mod'), 'tmi.js knows its moderator');
  check((await mod.ping())[0] >= 0, 'ping is answered');
  patient(mod);

  const dank = new ChatClient({
    username: 'ann', password: `oauth:${viewer}`, rateLimits: 'default',
    connection: { type: 'tcp', secure: false, host: '127.0.0.1', port: Number(tcp) },
  });
  let dankFault = null;
  dank.on('error', (error) => { dankFault = error; });
  const ready = heard(dank, 'ready');
  dank.connect();
  await ready;
  await dank.join(CHANNEL);
  console.log('tmi.js and dank-twitch-irc are in');

  // dank-twitch-irc speaks, tmi.js hears it with its tags.
  const chats = [mod, guest].map((client) => heard(client, 'chat'));
  await dank.say(CHANNEL, 'hello from dank ⚽');
  for (const [channel, tags, text, self] of await Promise.all(chats)) {
    check(channel === `#${CHANNEL}` && text === 'hello from dank ⚽' && !self, text);
    check(tags.username === 'ann' && tags['user-id'] === 'ann' && tags['display-name'] === 'ann', JSON.stringify(tags));
    check(Number(tags['tmi-sent-ts']) > 1.7e12 && /^\d+$/.test(tags.id), JSON.stringify(tags));
  }
  // tmi.js speaks, dank-twitch-irc hears it.
  // It listens by another connection than it speaks by, and hears itself there, as on Twitch.
  const privmsg = heard(dank, 'PRIVMSG', (said) => said.senderUsername !== 'ann');
  await mod.say(CHANNEL, 'hello from tmi');
  const [line] = await privmsg;
  check(line.messageText === 'hello from tmi' && line.senderUsername === 'mod' && line.channelName === CHANNEL, line.rawSource);
  console.log('both are heard');

  const slow = heard(guest, 'slowmode', (_, on) => on);
  await mod.slow(CHANNEL, 7);
  check((await slow)[2] === 7, 'slow mode is told');
  const fast = heard(guest, 'slowmode', (_, on) => !on);
  await mod.slowoff(CHANNEL);
  await fast;

  const chat = heard(guest, 'chat');
  await dank.say(CHANNEL, 'to be deleted');
  const id = (await chat)[1].id;
  const deleted = heard(guest, 'messagedeleted');
  const clearmsg = heard(dank, 'CLEARMSG');
  await mod.deletemessage(CHANNEL, id);
  const [, login, , tags] = await deleted;
  check(login === 'ann' && tags['target-msg-id'] === id, 'the deleted message is named');
  check((await clearmsg)[0].targetMessageID === id, 'dank-twitch-irc is told');

  const timeout = heard(guest, 'timeout');
  const clearchat = heard(dank, 'CLEARCHAT');
  await mod.timeout(CHANNEL, 'Ann', 60, 'enough');
  check((await timeout)[1] === 'ann', 'the timeout names its user');
  check((await clearchat)[0].isTimeout(), 'dank-twitch-irc is told of the timeout');
  const banned = heard(dank, 'NOTICE', (notice) => notice.messageID === 'msg_banned');
  await dank.say(CHANNEL, 'am I heard?').then(() => check(false, 'a banned user speaks'), () => {});
  await banned;
  await mod.unban(CHANNEL, 'ann');
  await dank.say(CHANNEL, 'thank you');
  const cleared = heard(guest, 'clearchat');
  await mod.clear(CHANNEL);
  await cleared;
  await mod.emoteonly(CHANNEL);
  await mod.emoteonlyoff(CHANNEL);
  console.log('moderated');

  // A gift and a score, as notices.
  const gift = heard(guest, 'usernotice', (id) => id === 'gift');
  const parsed = heard(dank, 'USERNOTICE', (notice) => notice.messageTypeID === 'gift');
  console.log('gift');
  const [, channel, giftTags] = await gift;
  check(channel === `#${CHANNEL}` && giftTags['msg-param-item'] === 'rose', JSON.stringify(giftTags));
  check((await parsed)[0].eventParams.item === 'rose', 'dank-twitch-irc reads the gift');

  // The server goes and comes: both are back in the room by themselves.
  const back = [heard(mod, 'connected'), heard(guest, 'join')];
  console.log('restart');
  await answers.next();
  await Promise.all(back);
  await mod.join(CHANNEL).catch(() => {});
  const again = heard(guest, 'chat', (_, __, text) => text === 'after the restart');
  await mod.say(CHANNEL, 'after the restart');
  await again;
  check(dankFault === null || !/parsing/.test(dankFault.message), `${dankFault}`);
  console.log('back');
  process.exit(0);
})().catch((fault) => check(false, fault.stack));
