// The danmaku over the room page's video area. On a canvas nothing can be read back but ink; where a test has to know what stands
// where, the browser is denied its canvas, which is also how the fallback is tested.
const path = require('node:path');

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live, say, shows, screens, token }) => {
  const { call, close, noSideways, SCREENS } = require('./desk.cjs')({ open, check, live });
  const noCanvas = () => { HTMLCanvasElement.prototype.getContext = () => null; };
  /** A room page of a browser that gives no canvas. */
  const bare = async (browser, url, options) => {
    const page = await open(browser, 'about:blank', options);
    await page.addInitScript(noCanvas);
    await page.goto(url);
    await live(page);
    return page;
  };
  const flies = (page, text) => page.waitForFunction(
    (wanted) => [...document.querySelectorAll('#wall .danmaku-entry')].some((e) => e.textContent === wanted), text);
  /** Opaque pixels of the canvas. */
  const ink = (page) => page.evaluate(() => {
    const canvas = document.querySelector('#wall canvas');
    if (canvas.width === 0 || canvas.height === 0) return 0;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let n = 0;
    for (let at = 3; at < data.length; at += 4) if (data[at] > 128) n += 1;
    return n;
  });
  const inked = (page, wanted) => page.waitForFunction((wanted) => {
    const canvas = document.querySelector('#wall canvas');
    // Before its first frame it has no size, and nothing on it.
    if (canvas.width === 0 || canvas.height === 0) return !wanted;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value, at) => at % 4 === 3 && value > 128) === wanted;
  }, wanted, { polling: 100 });

  return {
    async 'comments fly over the video, in every script, and the switch is remembered'({ browser, url, put, postAs }) {
      await put('wall', { title: 'The wall' });
      for (const [name, options] of SCREENS) {
        const page = await open(browser, `${url}/rooms/wall`, options);
        await live(page);
        check(await ink(page) === 0, 'an empty wall is empty');
        for (const [user, body] of [['mia', 'what a goal <b>that</b> was'], ['lou', '进球了！太厉害了'], ['sam', 'يا له من هدف رائع!'], ['zoe', '👨‍👩‍👧‍👦 🏳️‍🌈 👏🏽 family section'],
          ['kim', '한국 팬들도 여기 있어요'], ['ravi', 'क्या गोल था'], ['noa', 'איזה שער']]) await postAs('wall', { id: user, name: user }, `${body}`);
        await inked(page, true);
        await page.waitForFunction(() => {
          const canvas = document.querySelector('#wall canvas');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width >> 1, canvas.height);
          return data.some((value, at) => at % 4 === 3 && value > 128);
        }, null, { polling: 100 });
        check(await noSideways(page), `${name} scrolls sideways`);
        await page.screenshot({ path: path.join(screens, `wall-${name}.png`) });
        await close(page);
      }
      const page = await open(browser, `${url}/rooms/wall`);
      await live(page);
      check(await page.getAttribute('#wall-toggle', 'aria-pressed') === 'true' && await page.isVisible('#stage'), 'on at first');
      await page.focus('#wall-toggle');
      await page.keyboard.press('Enter');
      check(!await page.isVisible('#stage') && await page.getAttribute('#wall-toggle', 'aria-pressed') === 'false', 'off by key');
      await page.reload();
      await live(page);
      check(!await page.isVisible('#stage') && await page.getAttribute('#wall-toggle', 'aria-pressed') === 'false', 'and still off');
      await postAs('wall', { id: 'mia', name: 'mia' }, 'nobody sees this fly');
      await shows(page, 'nobody sees this fly');
      check(await ink(page) === 0, 'a wall that is off takes nothing');
      await page.click('#wall-toggle');
      await postAs('wall', { id: 'mia', name: 'mia' }, 'and this one does');
      await inked(page, true);
      await close(page);
    },

    async 'what is retracted is replaced where it flies, and an own comment flies once'({ browser, url, data, put, postAs, give }) {
      await put('wall-retract', { title: 'Retracts', combo_seconds: 3 });
      const moderator = token(data, 'mod-ada', 'admin');
      const act = async (how) => {
        const answer = await call(url, 'POST', '/admin/rooms/wall-retract/retract', moderator, { ...how, justification: 'browser test' });
        check(answer.status === 200, `retract: ${JSON.stringify(answer)}`);
      };
      const page = await bare(browser, `${url}/rooms/wall-retract`);
      const { event_id: id } = await postAs('wall-retract', { id: 'mia', name: 'Mia' }, 'buy <i>now</i> at example.com, cheap as nowhere else');
      await postAs('wall-retract', { id: 'lou', name: 'Lou' }, 'this one stays');
      await Promise.all([flies(page, 'buy <i>now</i> at example.com, cheap as nowhere else'), flies(page, 'this one stays')]);
      check(await page.$('#wall i') === null, 'text became markup');
      const boxes = () => page.$$eval('#wall .danmaku-entry', (all) => all.map((e) => [e.offsetWidth, getComputedStyle(e).transform.split(',').at(-1), e.textContent]));
      const before = await boxes();
      await act({ event_id: id });
      await flies(page, 'Removed');
      const after = await boxes();
      check(after.length === before.length && after.every(([width, top], n) => width === before[n][0] && top === before[n][1]), `in its place: ${before} then ${after}`);
      await page.screenshot({ path: path.join(screens, 'wall-retracted.png') });

      await page.fill('#composer-name', 'Ida');
      await say(page, 'my own words');
      await flies(page, 'my own words');
      await page.waitForFunction(() => document.querySelector('#feed .mine .fate')?.textContent === 'sent');
      await postAs('wall-retract', { id: 'lou', name: 'Lou' }, 'after them');
      await flies(page, 'after them');
      check(await page.locator('#wall .danmaku-entry', { hasText: 'my own words' }).count() === 1, 'an own comment flies once');
      check(await page.locator('#wall .danmaku-own').count() === 1, 'and is marked');
      // All of the author's, wherever they are: the own one too.
      const { body } = await call(url, 'GET', '/v1/rooms/wall-retract/snapshot', moderator);
      const own = body.recent_comments.find((c) => c.body === 'my own words');
      await act({ user_id: own.user.id });
      await page.waitForFunction(() => ![...document.querySelectorAll('#wall .danmaku-entry')].some((e) => e.textContent === 'my own words'));

      // Gifts have a lane of their own, and are counted up where they fly.
      await give('wall-retract', { user: { id: 'ann', name: '<b>Ann</b>' }, item: 'rose', count: 1, amount_micros: 990_000, currency: 'EUR' });
      await flies(page, '<b>Ann</b> · rose ×1');
      for (let n = 0; n < 4; n += 1) await give('wall-retract', { user: { id: 'ann', name: '<b>Ann</b>' }, item: 'rose', count: 2, amount_micros: 1_980_000, currency: 'EUR' });
      await flies(page, '<b>Ann</b> · rose ×9');
      check(await page.locator('#wall .danmaku-gift').count() === 1, 'a combo flies once');
      check(await page.$eval('#wall .danmaku-gift', (e) => new DOMMatrix(getComputedStyle(e).transform).f) === 0, 'in the uppermost lane');
      await close(page);
    },

    async 'an own comment that is sent again flies on'({ browser, url, put }) {
      await put('wall-again', { title: 'Again' });
      const page = await open(browser, 'about:blank');
      await page.addInitScript(noCanvas);
      await page.routeWebSocket(/\/stream/, (near) => {
        const far = near.connectToServer();
        let turnedAway = false;
        near.onMessage((text) => {
          const { op, client_msg_id } = JSON.parse(text);
          if (op !== 'publish' || turnedAway) { far.send(text); return; }
          turnedAway = true;
          near.send(JSON.stringify({ type: 'error', room_id: 'wall-again', client_msg_id, code: 'overloaded', message: 'busy', retry_after_ms: 300 }));
        });
      });
      await page.goto(`${url}/rooms/wall-again`);
      await live(page);
      await page.fill('#composer-name', 'Ida');
      await say(page, 'said into a crowd');
      await page.waitForFunction(() => document.querySelector('#feed .mine .fate')?.textContent === 'sent');
      const own = await page.$$eval('#wall .danmaku-entry', (all) => all.map((e) => e.textContent));
      check(own.join() === 'said into a crowd', `on the wall: ${own}`);
      await close(page);
    },

    async 'the lane under the pointer stands, and nothing moves for those who want it so'({ browser, url, put, postAs }) {
      await put('wall-calm', { title: 'Calm' });
      const page = await bare(browser, `${url}/rooms/wall-calm`);
      for (let n = 0; n < 4; n += 1) await postAs('wall-calm', { id: 'mia', name: 'Mia' }, `a long line that can be pointed at, number ${n}`);
      await flies(page, 'a long line that can be pointed at, number 3');
      await page.waitForFunction(() => document.querySelector('#wall .danmaku-entry').getBoundingClientRect().right < innerWidth - 60);
      const box = await page.locator('#wall .danmaku-entry').first().boundingBox();
      await page.mouse.move(box.x + 60, box.y + 10);
      const states = () => page.$$eval('#wall .danmaku-entry', (all) => all.map((e) => e.getAnimations()[0].playState).join());
      await page.waitForFunction(() => document.querySelector('#wall .danmaku-entry').getAnimations()[0].playState === 'paused');
      check(await states() === 'paused,running,running,running', `one lane stands: ${await states()}`);
      await page.mouse.move(500, 700);
      await page.waitForFunction(() => [...document.querySelectorAll('#wall .danmaku-entry')].every((e) => e.getAnimations()[0].playState === 'running'));
      await close(page);

      const calm = await bare(browser, `${url}/rooms/wall-calm`, { reducedMotion: 'reduce' });
      for (let n = 0; n < 3; n += 1) await postAs('wall-calm', { id: 'mia', name: 'Mia' }, `stands, number ${n}`);
      await flies(calm, 'stands, number 2');
      check(await calm.$$eval('#wall .danmaku-entry', (all) => all.every((e) => e.getAnimations().length === 0)), 'something moves');
      await calm.screenshot({ path: path.join(screens, 'wall-calm.png') });
      // They go as they came.
      await calm.waitForFunction(() => document.querySelectorAll('#wall .danmaku-entry').length === 0);
      await close(calm);
    },

    async 'a pack of animations draws its gifts, and one that fails takes nothing down'({ browser, url }) {
      const page = await open(browser, `${url}/rooms/pack`);
      await live(page);
      for (const drawer of ['canvas', 'dom']) {
        const seen = await page.evaluate(async (drawer) => {
          const { Danmaku } = await import('/assets/danmaku.js');
          const root = document.createElement('div');
          Object.assign(root.style, { position: 'fixed', inset: '0', zIndex: 9 });
          document.body.append(root);
          const seen = { boxes: [], counts: [], times: [], faults: [] };
          const rocket = {
            width: (gift, measure) => measure(gift.item) + 100,
            canvas: (context, gift, box, ms) => { seen.boxes.push(box); seen.counts.push(gift.count); seen.times.push(ms); context.fillStyle = '#f0f'; context.fillRect(box.x - 500, box.y, 2000, box.height); },
            dom: (element, gift) => { seen.counts.push(gift.count); element.append(document.createElement('b')); },
          };
          const broken = { width: () => 80, canvas: () => { throw new Error('no'); }, dom: () => { throw new Error('no'); } };
          const danmaku = new Danmaku(root, { drawer, gifts: { rocket, broken }, onFault: (item, fault) => seen.faults.push(`${item}: ${fault.message}`) });
          danmaku.give({ id: 1, item: 'rocket', count: 1, text: 'rocket' });
          danmaku.give({ id: 2, item: 'broken', count: 1, text: 'broken' });
          const frames = async (n) => { for (; n > 0; n -= 1) await new Promise(requestAnimationFrame); };
          await frames(5);
          danmaku.give({ id: 1, item: 'rocket', count: 7, text: 'rocket' });
          await frames(5);
          seen.visible = danmaku.visible;
          seen.elements = root.querySelectorAll('.danmaku-gift').length;
          danmaku.destroy();
          seen.left = root.children.length;
          root.remove();
          return seen;
        }, drawer);
        check(JSON.stringify(seen.faults) === '["broken: no"]' && seen.visible === 2, `${drawer}: ${JSON.stringify(seen.faults)}, ${seen.visible} shown`);
        check(seen.counts[0] === 1 && seen.counts.at(-1) === 7, `${drawer}: counts ${seen.counts}`);
        check(seen.left === 0, 'something is left behind');
        if (drawer === 'dom') { check(seen.elements === 2, 'each has its element'); continue; }
        check(seen.boxes.length >= 8 && seen.boxes.every((b) => b.width === seen.boxes[0].width && b.y === 0), 'in its box, at every frame');
        check(seen.times.every((ms, n) => n === 0 || ms > seen.times[n - 1]) && seen.boxes.at(-1).x < seen.boxes[0].x, 'told how long it flies');
      }
      await close(page);
    },
  };
};
