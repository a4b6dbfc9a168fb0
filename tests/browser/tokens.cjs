// Tokens that are taken back, run out or come late, a room that is sampled, and a tab that is held back: the client package in Chromium
// against the real server, on each rung. Tokens are of an identity provider of the test's own.
const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const network = require('./network.cjs');

const RUNGS = ['websocket', 'sse', 'poll'];

/** Keys by kid, as a provider publishes them; `mint` signs with one of them. */
function provider(kids) {
  const keys = new Map(kids.map((kid) => [kid, crypto.generateKeyPairSync('ed25519')]));
  const set = { keys: kids.map((kid) => ({ ...keys.get(kid).publicKey.export({ format: 'jwk' }), kid, alg: 'EdDSA', use: 'sig' })) };
  const part = (what) => Buffer.from(JSON.stringify(what)).toString('base64url');
  return {
    /** Settings that make a server believe it. */
    settings: (folder) => {
      const file = path.join(folder, 'jwks.json');
      fs.writeFileSync(file, JSON.stringify(set));
      return [`auth.jwks_file=${file}`];
    },
    /** A token of `sub` that ends in so many seconds. */
    mint(sub, { kid = kids[0], seconds = 3_600, ...more } = {}) {
      const now = Math.floor(Date.now() / 1000);
      const text = `${part({ alg: 'EdDSA', typ: 'JWT', kid })}.${part({ sub, iat: now - 60, exp: now + seconds, roles: ['publisher'], ...more })}`;
      return `${text}.${crypto.sign(null, Buffer.from(text), keys.get(kid).privateKey).toString('base64url')}`;
    },
  };
}

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live, token, alone }) => {
  const { call } = require('./desk.cjs')({ open, check, live });
  /**
   * Rooms in one page, by name. `tokens`: what the callback gives for each reason, one after the other, the last again and again; a number
   * is waited for, in ms, before what follows it, `null` throws. What a room says and hears is in `rooms[name]`.
   */
  const watch = (page, name, room, options, tokens = null) => page.evaluate(async ([name, id, given, lists]) => {
    const { Room } = await import('/assets/grandstand-client.js');
    const it = { seen: [], hellos: 0, states: [], reasons: [], ids: [] };
    window.rooms = { ...window.rooms, [name]: it };
    const give = async (reason) => {
      it.reasons.push(reason);
      const list = lists[reason] ?? [null];
      const next = () => (list.length > 1 ? list.shift() : list[0]);
      let one = next();
      if (typeof one === 'number') { await new Promise((resolve) => { setTimeout(resolve, one); }); one = next(); }
      if (one === null) throw new Error('none is to be had');
      return one;
    };
    it.room = new Room({ room: id, share: false, storage: null, ...(lists && { token: give }), ...given });
    it.room.on('event', (e) => {
      if (e.type === 'hello') it.hellos += 1;
      if (e.type === 'comment') { it.seen.push(e.body); it.ids.push(e.event_id); }
    });
    it.room.on('status', ({ state }) => { it.states.push(state); });
    it.room.start();
  }, [name, room, options, tokens]);
  const state = (page, name, wanted) => page.waitForFunction(([name, wanted]) => window.rooms[name].room.status.state === wanted, [name, wanted]);
  const heard = (page, name, body) => page.waitForFunction(([name, body]) => window.rooms[name].seen.includes(body), [name, body]);
  const told = (page, name) => page.evaluate((name) => {
    const { room, ...it } = window.rooms[name];
    return { ...it, status: room.status };
  }, name);
  const say = async ({ url, data }, room, body, as) => {
    const answer = await call(url, 'POST', `/v1/rooms/${room}/comments`, token(data, 'backend', 'backend'), { client_msg_id: crypto.randomUUID(), body, as });
    check(answer.status === 200, `publish: ${JSON.stringify(answer)}`);
  };
  const revoke = async ({ url, admin }, whose) => {
    const answer = await call(url, 'POST', '/admin/access/revocations', admin, { ...whose, justification: 'browser test' });
    check(answer.status === 200, `revoke: ${JSON.stringify(answer)}`);
  };

  return {
    async 'sdk: who is taken back is sent away from each rung, and whose key is fetches another token'({ browser }) {
      const idp = provider(['old', 'new']);
      await alone(idp.settings, async (server) => {
        const page = await open(browser, `${server.url}/`);
        const requests = [];
        page.on('request', (request) => { if (request.url().includes('/v1/rooms/')) requests.push(request.url()); });
        for (const rung of RUNGS) {
          await watch(page, `session ${rung}`, 'taken', { rungs: [rung] }, { start: [idp.mint('ann', { sid: `of-${rung}` })] });
          await watch(page, `user ${rung}`, 'taken', { rungs: [rung] }, { start: [idp.mint(`bo-${rung}`)] });
          await watch(page, `key ${rung}`, 'taken', { rungs: [rung] }, { start: [idp.mint('kim')], expired: [idp.mint('kim', { kid: 'new' })] });
          for (const whose of ['session', 'user', 'key']) await state(page, `${whose} ${rung}`, 'live');
        }
        await say(server, 'taken', 'to all');
        for (const rung of RUNGS) for (const whose of ['session', 'user', 'key']) await heard(page, `${whose} ${rung}`, 'to all');
        for (const rung of RUNGS) {
          await revoke(server, { session: `of-${rung}` });
          await revoke(server, { user: `bo-${rung}` });
          for (const whose of ['session', 'user']) {
            await state(page, `${whose} ${rung}`, 'stopped');
            const { status, reasons } = await told(page, `${whose} ${rung}`);
            check(status.code === 4003 && reasons.join() === 'start', `${whose} ${rung}: ${JSON.stringify([status, reasons])}`);
          }
        }
        await revoke(server, { key: 'old' });
        for (const rung of RUNGS) await page.waitForFunction((name) => window.rooms[name].reasons.includes('expired'), `key ${rung}`);
        await say(server, 'taken', 'to who came back');
        for (const rung of RUNGS) {
          await heard(page, `key ${rung}`, 'to who came back');
          const { seen, reasons } = await told(page, `key ${rung}`);
          check(seen.join() === 'to all,to who came back' && reasons.join() === 'start,expired', `key ${rung}: ${seen} ${reasons}`);
          for (const whose of ['session', 'user']) check((await told(page, `${whose} ${rung}`)).seen.join() === 'to all', `${whose} ${rung} heard on`);
        }
        // Who was sent away asks for nothing any more.
        for (const rung of RUNGS) await page.evaluate((name) => window.rooms[name].room.stop(), `key ${rung}`);
        requests.length = 0;
        await page.evaluate(() => new Promise((resolve) => { setTimeout(resolve, 3_000); }));
        check(requests.length === 0, `requests: ${requests}`);
        check(page.faults.length === 0, `page faults: ${page.faults}`);
        await page.context().close();
      });
    },

    async 'sdk: a token that is renewed late keeps its stream, one that is renewed too late comes back'({ browser }) {
      const idp = provider(['one']);
      await alone(idp.settings, async (server) => {
        await server.put('members', { anonymous_view: false });
        const page = await open(browser, `${server.url}/`);
        for (const rung of RUNGS) {
          // It ends in two seconds and is good for thirty more; another is to be had at the second time of asking, six seconds after it.
          await watch(page, `late ${rung}`, 'members', { rungs: [rung] }, { start: [idp.mint(`late-${rung}`, { seconds: 2 })], expiring: [null, 6_000, idp.mint(`late-${rung}`)] });
          // Here none is to be had before that.
          await watch(page, `too late ${rung}`, 'members', { rungs: [rung] }, { start: [idp.mint(`gone-${rung}`, { seconds: 2 })], expired: [idp.mint(`gone-${rung}`)] });
          for (const how of ['late', 'too late']) await state(page, `${how} ${rung}`, 'live');
        }
        for (const rung of RUNGS) await page.waitForFunction((name) => window.rooms[name].reasons.filter((r) => r === 'expiring').length >= 2, `late ${rung}`);
        // Past its leeway the old one would be no token any more.
        await page.evaluate(() => new Promise((resolve) => { setTimeout(resolve, 33_000); }));
        for (const rung of RUNGS) await page.waitForFunction((name) => window.rooms[name].reasons.includes('expired'), `too late ${rung}`);
        await say(server, 'members', 'are you here?');
        for (const rung of RUNGS) {
          for (const how of ['late', 'too late']) {
            const name = `${how} ${rung}`;
            await heard(page, name, 'are you here?');
            await page.evaluate((name) => { window.rooms[name].room.publish(`yes, ${name}`); }, name);
            await page.waitForFunction((name) => window.rooms[name].room.store.entries.some((e) => e.mine && e.fate === 'sent' && e.id !== undefined), name);
            const { hellos, states, reasons } = await told(page, name);
            check(how === 'too late' || (hellos <= 1 && states.filter((s) => s === 'live').length === 1), `${name}: ${hellos} streams, ${states}`);
            check(how === 'late' ? !reasons.includes('expired') : reasons.filter((r) => r === 'expired').length === 1, `${name}: ${reasons}`);
          }
        }
        check(page.faults.length === 0, `page faults: ${page.faults}`);
        await page.context().close();
      });
    },

    async 'sdk: of a sampled room one reader is given the same on every rung, over a cut too'({ browser, url, data, put, postAs }) {
      await put('sdk-sampled', { sampling: 'always', cap: 5 });
      const between = await network(url);
      const page = await open(browser, `${between.url}/`);
      const reader = token(data, 'reader', 'viewer');
      for (const rung of RUNGS) await watch(page, rung, 'sdk-sampled', { rungs: [rung], token: reader });
      for (const rung of RUNGS) await state(page, rung, 'live');
      let said = 0;
      const until = Date.now() + 9_000;
      for (let cut = false; Date.now() < until;) {
        await Promise.all([...Array(8)].map(() => postAs('sdk-sampled', { id: `user-${(said += 1) % 97}`, name: 'Somebody' }, `line ${said}`)));
        if (!cut && said > 100) { between.reset(); cut = true; }
      }
      await put('sdk-sampled', { sampling: 'none' });
      await postAs('sdk-sampled', { id: 'last', name: 'Last' }, 'the end');
      for (const rung of RUNGS) await heard(page, rung, 'the end');
      const [first, ...others] = await Promise.all(RUNGS.map((rung) => told(page, rung)));
      for (const other of others) check(JSON.stringify(other.ids) === JSON.stringify(first.ids), `${other.status.way} was given ${other.seen}, ${first.status.way} ${first.seen}`);
      check(new Set(first.ids).size === first.ids.length && first.ids.every((id, n) => n === 0 || id > first.ids[n - 1]), 'each once, in order');
      // Nine seconds of five, and what a window that was held up brings.
      check(first.seen.length > 20 && first.seen.length <= 60 && first.seen.length < said, `${first.seen.length} of ${said}`);
      const shown = await page.evaluate(() => Object.values(window.rooms).map(({ room }) => [room.store.holes, room.store.skipped, room.store.config.sampled]));
      check(shown.every(([holes, skipped, sampled]) => holes === 0 && skipped === 0 && sampled === false), JSON.stringify(shown));
      check(page.faults.length === 0, `page faults: ${page.faults}`);
      await page.context().close();
      between.close();
    },

    async 'sdk: a tab in the background, whose timers are held back and whose page stands still, keeps its streams'({ browser, url, post }) {
      const page = await open(browser, 'about:blank');
      await page.addInitScript(() => {
        // What browsers do to a hidden page after a while: its timers fire at whole minutes alone.
        const { setTimeout } = window;
        const hidden = { now: false };
        Object.defineProperty(document, 'hidden', { get: () => hidden.now });
        window.hide = (now) => { hidden.now = now; document.dispatchEvent(new Event('visibilitychange')); };
        let [at, is, times] = [Date.now(), Date.now(), 1];
        const now = () => at + (Date.now() - is) * times;
        window.hurry = (faster) => { [at, is, times] = [now(), Date.now(), faster]; };
        window.held = { now, timer: (fire, ms) => setTimeout(fire, (hidden.now ? Math.ceil(Math.max(ms, 1) / 60_000) * 60_000 : ms) / times) };
      });
      await page.goto(`${url}/`);
      for (const rung of RUNGS) {
        await page.evaluate(async ([rung]) => {
          const { Room } = await import('/assets/grandstand-client.js');
          const it = { seen: [], states: [], ids: [] };
          window.rooms = { ...window.rooms, [rung]: it };
          it.room = new Room({ room: 'sdk-background', share: false, storage: null, rungs: [rung], env: window.held });
          it.room.on('event', (e) => { if (e.type === 'comment') it.seen.push(e.body); });
          it.room.on('status', ({ state }) => { it.states.push(state); });
          it.room.start();
        }, [rung]);
      }
      for (const rung of RUNGS) await state(page, rung, 'live');
      // From here on eight times as fast.
      await page.evaluate(() => { window.hurry(8); window.hide(true); });
      const wanted = [];
      // Two of its minutes and more, in which something is said more often than an event stream may be silent.
      for (let n = 0; n < 20; n += 1) {
        wanted.push(`background ${n}`);
        await post('sdk-background', `background ${n}`);
        await page.evaluate(() => new Promise((resolve) => { setTimeout(resolve, 800); }));
      }
      // Its thread stands still for longer than a stream may be silent; what comes meanwhile waits behind a timer that is late.
      const still = page.evaluate(() => { for (const until = Date.now() + 7_000; Date.now() < until;); });
      for (let n = 0; n < 12; n += 1) {
        wanted.push(`still ${n}`);
        await post('sdk-background', `still ${n}`);
        await new Promise((resolve) => { setTimeout(resolve, 400); });
      }
      await still;
      for (const rung of RUNGS) await heard(page, rung, 'still 11');
      await page.evaluate(() => window.hide(false));
      wanted.push('seen again');
      await post('sdk-background', 'seen again');
      for (const rung of RUNGS) {
        await heard(page, rung, 'seen again');
        const { seen, states } = await told(page, rung);
        check(JSON.stringify(seen) === JSON.stringify(wanted), `${rung}: ${seen}`);
        check(states.filter((s) => s !== 'connecting').join() === 'live', `${rung}: ${states}`);
      }
      check(page.faults.length === 0, `page faults: ${page.faults}`);
      await page.context().close();
    },
  };
};
