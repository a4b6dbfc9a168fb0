// The overlay that a broadcaster lays over a picture, and the page that others put into a frame; axe-core on all pages.
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const root = path.resolve(__dirname, '../..');

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live, say, shows, screens, token, alone }) => {
  const { call, close, judge, noSideways, enter, PHONE, SCREENS } = require('./desk.cjs')({ open, check, live });
  const up = (page) => page.waitForFunction(() => document.body.dataset.state === 'live');
  const overlay = async (browser, url, options) => {
    const page = await open(browser, url, { viewport: { width: 800, height: 600 }, ...options });
    await up(page);
    return page;
  };
  const item = (page, className, text) => page.waitForFunction(
    ([name, wanted]) => [...document.querySelectorAll(`.${name}`)].some((e) => e.textContent.includes(wanted)), [className, text]);
  const items = (page) => page.$$eval('.gs-item', (all) => all.map((e) => e.textContent));
  const retract = async (url, room, secret, how) => {
    const answer = await call(url, 'POST', `/admin/rooms/${room}/retract`, secret, { ...how, justification: 'browser test' });
    check(answer.status === 200, `retract: ${JSON.stringify(answer)}`);
  };
  /** A page of another origin with this in it; the server that shows it is closed by `done`. */
  const elsewhere = async (html) => {
    const server = http.createServer((_, response) => { response.setHeader('content-type', 'text/html; charset=utf-8'); response.end(html()); });
    await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
    return { origin: `http://127.0.0.1:${server.address().port}`, done: () => { server.closeAllConnections(); server.close(); } };
  };

  return {
    async 'an overlay shows a room on nothing, and each of its classes is in the handbook'({ browser, url, data, put, postAs, give, banner }) {
      await put('cast', { title: 'The cast', matches: ['north-south'], banner_items: ['rocket'], banner_seconds: 600, anonymous_view: true });
      const admin = token(data, 'mod-ada', 'admin');
      const page = await overlay(browser, `${url}/overlay/cast`);
      const { event_id: bad } = await postAs('cast', { id: 'mia', name: '<i>Mia</i>', badges: ['mod', 'vip'] }, 'a link <b>you</b> should not see');
      await postAs('cast', { id: 'omar', name: 'عمر' }, 'يا له من هدف رائع 👏🏽');
      await postAs('cast', { id: 'lou', name: 'Lou' }, '进球了 👨‍👩‍👧‍👦');
      await give('cast', { user: { id: 'ann', name: 'Ann' }, item: 'rocket', count: 2, amount_micros: 20_000_000, currency: 'EUR' });
      await give('cast', { user: { id: 'bo', name: 'Bo' }, item: 'rose', count: 1, amount_micros: 0, currency: 'EUR' });
      await give('cast', { user: { id: 'bo', name: 'Bo' }, item: 'rose', count: 1, amount_micros: 0, currency: 'EUR' });
      const typed = { kind: 'goal', score: { home: 1, away: 0 }, minute: '12', justification: 'browser test' };
      const asked = await call(url, 'POST', '/admin/matches/north-south/scores', admin, typed);
      const done = await call(url, 'POST', '/admin/matches/north-south/scores', admin, { ...typed, confirm: asked.body.confirm });
      check(done.status === 200, `a score: ${JSON.stringify(done)}`);
      await Promise.all([item(page, 'gs-comment', 'a link <b>you</b> should not see'), item(page, 'gs-gift', 'rocket×2'), item(page, 'gs-combo', 'rose×2'),
        item(page, 'gs-score', '1 – 0'), item(page, 'gs-banner', 'rocket')]);
      check(await page.$('.gs-feed i, .gs-feed b') === null, 'text became markup');
      check(await page.$eval('.gs-comment', (e) => e.dataset.badges) === 'mod vip', 'badges can be chosen by');
      const clear = await page.evaluate(() => [document.documentElement, document.body, document.querySelector('.gs-stage')].map((e) => getComputedStyle(e).backgroundColor));
      check(clear.every((c) => c === 'rgba(0, 0, 0, 0)'), `not transparent: ${clear}`);
      await page.screenshot({ path: path.join(screens, 'overlay-dark.png'), omitBackground: true });
      const names = new Set(await page.$$eval('[class]', (all) => all.flatMap((e) => [...e.classList])));

      const place = (p) => p.$$eval('.gs-item', (all) => all.map((e) => e.className.includes('gs-removed')).indexOf(true));
      await retract(url, 'cast', admin, { event_id: bad, reason: 'spam' });
      await item(page, 'gs-removed', 'Removed');
      check(await place(page) === 0, 'in its place');
      check(!(await page.textContent('.gs-feed')).includes('should not see'), 'its text is gone');
      for (const name of await page.$$eval('[class]', (all) => all.flatMap((e) => [...e.classList]))) names.add(name);

      // What OBS does with the rules that a broadcaster gives it.
      await page.evaluate(() => {
        const style = document.createElement('style');
        style.append('body { background-color: rgba(0, 0, 0, 0); margin: 0px auto; overflow: hidden; } .gs-removed { display: none; } .gs-comment .gs-body { color: rgb(1, 2, 3); }');
        document.head.append(style);
      });
      check(await page.$eval('.gs-body', (e) => getComputedStyle(e).color) === 'rgb(1, 2, 3)' && !await page.isVisible('.gs-removed'), 'own rules hold');
      await close(page);

      for (const theme of ['light', 'plain']) {
        const other = await overlay(browser, `${url}/overlay/cast?theme=${theme}`);
        await item(other, 'gs-comment', '进球了');
        await other.screenshot({ path: path.join(screens, `overlay-${theme}.png`), omitBackground: theme === 'light' });
        for (const name of await other.$$eval('[class]', (all) => all.flatMap((e) => [...e.classList]))) names.add(name);
        await close(other);
      }
      const handbook = fs.readFileSync(path.join(root, 'docs/overlay.md'), 'utf8');
      for (const name of names) check(handbook.includes(`\`.${name}\``), `${name} is not in docs/overlay.md`);
      check(names.size > 20, `classes that were seen: ${[...names]}`);
    },

    async 'an overlay keeps to its lines and its time, and says which parameter is wrong'({ browser, url, put, post, give }) {
      await put('few', { title: 'Few', combo_seconds: 60 });
      const page = await overlay(browser, `${url}/overlay/few?max=3`);
      for (let n = 0; n < 5; n += 1) await post('few', `line ${n}`);
      await item(page, 'gs-body', 'line 4');
      check((await items(page)).map((t) => t.slice(-6)).join() === 'line 2,line 3,line 4', `the newest three: ${await items(page)}`);
      await close(page);

      const fading = await overlay(browser, `${url}/overlay/few?max=100&fade=1&theme=plain`);
      check((await items(fading)).length === 0, 'what was said before is over');
      await post('few', 'soon gone');
      await item(fading, 'gs-body', 'soon gone');
      await fading.waitForSelector('.gs-fading');
      await fading.waitForFunction(() => document.querySelectorAll('.gs-item').length === 0);
      // A gift that is counted on is news again.
      const rose = { user: { id: 'ann', name: 'Ann' }, item: 'rose', count: 1, amount_micros: 0, currency: 'EUR' };
      await give('few', rose);
      await item(fading, 'gs-count', '×1');
      await fading.waitForFunction(() => document.querySelectorAll('.gs-item').length === 0);
      await give('few', rose);
      await item(fading, 'gs-count', '×2');
      await close(fading);

      for (const [query, rule] of [['theme=pink', 'theme is one of dark, light, plain'], ['max=0', 'max is a number of lines from 1 to 100'],
        ['max=101', 'max is a number of lines from 1 to 100'], ['max=1e1', 'max is a number of lines from 1 to 100'], ['fade=-1', 'fade is a number of seconds from 0 to 3600, 0 being never'],
        ['fade=3601', 'fade is a number of seconds from 0 to 3600, 0 being never'], ['max=5&max=6', 'max is given more than once'], ['colour=red', 'there is no parameter "colour" here, only theme, max, fade'],
        ['token=x', 'a token does not belong into an address: use Authorization']]) {
        const answer = await fetch(`${url}/overlay/few?${query}`);
        const { detail } = await answer.json();
        check(answer.status === 400 && detail === rule, `${query}: ${answer.status} ${detail}`);
      }
      check((await fetch(`${url}/overlay/UPPER`)).status === 400, 'a room that cannot be');
    },

    async 'an overlay enters a room that is closed to guests by a ticket, and comes back with it'({ browser, url, data, put, postAs }) {
      await put('closed', { title: 'Members', anonymous_view: false });
      const shut = await open(browser, `${url}/overlay/closed`);
      await item(shut, 'gs-note', 'This room is not open to everyone');
      check((await items(shut)).length === 0, 'it shows nothing');
      await shut.context().close();
      const viewer = token(data, 'caster', 'viewer');
      const sold = await call(url, 'POST', '/v1/ticket', viewer, { room_id: 'closed' });
      const page = await overlay(browser, `${url}/overlay/closed#ticket=${sold.body.ticket}`);
      check(!page.url().includes('ticket'), 'the ticket leaves the address');
      await postAs('closed', { id: 'mia', name: 'Mia' }, 'among ourselves');
      await item(page, 'gs-body', 'among ourselves');
      await page.context().setOffline(true);
      await page.waitForFunction(() => document.body.dataset.state !== 'live');
      await postAs('closed', { id: 'mia', name: 'Mia' }, 'said meanwhile');
      await page.context().setOffline(false);
      await item(page, 'gs-body', 'said meanwhile');
      check(await page.isHidden('.gs-note'), 'nothing to complain of');
      await close(page);
      const again = await open(browser, `${url}/overlay/closed#ticket=${sold.body.ticket}`);
      await item(again, 'gs-note', 'The ticket has ended');
      await again.context().close();
    },

    async 'a room is embedded by its own site, by those named in the settings, and by nobody else'({ browser, url, put, post }) {
      await put('framed', { title: 'In a frame' });
      await post('framed', 'hello from the room');
      let framed = '';
      const club = await elsewhere(() => `<!doctype html><title>club</title><style>body{margin:0;background:#345}</style><iframe title="room" src="${framed}" width="360" height="420"></iframe>`);
      try {
        await alone(() => [`embed.origins=${club.origin}`], async (listed) => {
          const isKeptOut = async (address) => {
            framed = address;
            const page = await open(browser, 'about:blank');
            const refused = page.waitForEvent('console', (m) => /frame-ancestors/.test(m.text()));
            await page.goto(club.origin);
            await refused;
            await page.context().close();
          };
          // Not on the list: the browser keeps it out.
          await isKeptOut(`${url}/embed/framed`);
          // The room page itself is in nobody's frame, whoever is listed.
          await isKeptOut(`${listed.url}/rooms/framed`);

          framed = `${listed.url}/embed/framed`;
          const page = await open(browser, 'about:blank');
          await page.goto(club.origin);
          const frame = page.frameLocator('iframe');
          await frame.locator('#state[data-state=live]').waitFor();
          await frame.locator('#composer-name').fill('Fan');
          await frame.locator('#composer-text').fill('said in a frame');
          await frame.locator('#composer-text').press('Enter');
          await frame.locator('#feed .mine .fate', { hasText: 'sent' }).waitFor();
          await page.screenshot({ path: path.join(screens, 'embed-framed.png') });
          await close(page);
        });
      } finally {
        club.done();
      }
      for (const [name, options] of SCREENS) {
        const page = await open(browser, `${url}/embed/framed`, { viewport: { width: 360, height: 420 }, ...options, ...(options.viewport ? { viewport: PHONE.viewport } : {}) });
        await live(page);
        await shows(page, 'hello from the room');
        check(await noSideways(page), `${name} scrolls sideways`);
        check(await page.$('#wall') === null && await page.$('.home') === null, 'small');
        await page.screenshot({ path: path.join(screens, `embed-${name}.png`) });
        await close(page);
      }
      const head = (await fetch(`${url}/embed/framed`)).headers;
      check(head.get('content-security-policy').includes("frame-ancestors 'self';") && head.get('x-frame-options') === 'SAMEORIGIN', 'by its own site alone');
    },

    async 'axe-core finds nothing on any page, on phone and desktop, light and dark'({ browser, url, data, put, postAs, give, banner }) {
      await put('axe', { title: 'Looked at', matches: ['axe-match'], banner_items: ['rocket'], banner_seconds: 600, sampling: 'always' });
      await put('axe', { sampling: 'none' });
      const admin = token(data, 'mod-ada', 'admin');
      const { event_id: gone } = await postAs('axe', { id: 'mia', name: 'Mia', badges: ['mod'] }, 'to be removed');
      await postAs('axe', { id: 'lou', name: 'Lou' }, 'how is this for contrast?');
      await give('axe', { user: { id: 'ann', name: 'Ann' }, item: 'rocket', count: 2, amount_micros: 20_000_000, currency: 'EUR' });
      await retract(url, 'axe', admin, { event_id: gone });
      const typed = { kind: 'goal', score: { home: 1, away: 0 }, minute: '12', justification: 'browser test' };
      const asked = await call(url, 'POST', '/admin/matches/axe-match/scores', admin, typed);
      await call(url, 'POST', '/admin/matches/axe-match/scores', admin, { ...typed, confirm: asked.body.confirm });
      const found = [];
      let looked = 0;
      for (const [screen, options] of SCREENS) {
        for (const where of ['/', '/rooms/axe', '/embed/axe', '/overlay/axe?theme=light', '/console', '/console#/room/axe']) {
          const page = where === '/console#/room/axe' ? await enter(browser, url, admin, 'axe', options) : await open(browser, url + where, options);
          if (/^\/(rooms|embed)/.test(where)) { await live(page); await shows(page, 'how is this for contrast?'); }
          if (where.startsWith('/overlay')) await item(page, 'gs-body', 'how is this for contrast?');
          // What comes in by an animation is looked at when it is there.
          await page.waitForFunction(() => document.getAnimations().every((a) => a.playState !== 'running' || a.effect.target?.closest('#wall')));
          const { broken, held } = await judge(page);
          looked += held;
          for (const what of broken) found.push(`${screen} ${where}: ${what}`);
          await page.context().close();
        }
      }
      check(looked > 100, `${looked} rules held: axe did not look`);
      check(found.length === 0, `axe-core:\n${found.join('\n')}`);
    },
  };
};
