// The operators' console in a real browser, by its keys alone: what a moderator does is on a viewer's page at once, each role
// opens what it may and nothing else, and what users wrote is text wherever it is shown.
const path = require('node:path');

const HOSTILE = ['<img src=x onerror=alert(1)>', '</li><script>alert(1)</script>', '"><b>bold</b>', '\u202e<i>x</i>', 'javascript:alert(1)'];

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live, shows, screens, token }) => {
  const { signIn, enter, openRoom, said, asked, answer, choose, within, close, allNamed, gone, noSideways, call, SCREENS } = require('./desk.cjs')({ open, check, live });

  return {
    async 'a moderator retracts and bans by keyboard and a viewer sees it within a second'({ browser, url, data, put, postAs }) {
      const room = 'derby:north';
      await put(room, { title: 'Derby' });
      for (let n = 0; n < 8; n += 1) await postAs(room, { id: `fan${n}`, name: `Fan ${n}` }, `cheering ${n}`);
      await postAs(room, { id: 'spammer', name: 'Spammer' }, 'buy this');
      await postAs(room, { id: 'spammer', name: 'Spammer' }, 'and that');
      const viewer = await open(browser, `${url}/rooms/${room}`);
      await live(viewer);
      await shows(viewer, 'and that');
      const page = await enter(browser, url, token(data, 'mod-mia', 'room-mod', ['derby*']), room);
      await shows(page, 'and that');

      await choose(page, 'buy this');
      await page.keyboard.press('r');
      await asked(page);
      const dialog = await page.textContent('dialog');
      check(dialog.includes('buy this') && /\d+ viewers?/.test(dialog) && dialog.includes(room), `what it will do: ${dialog}`);
      check(dialog.includes('cannot be taken back'), 'a retract says that it is for good');
      await page.fill('#ask-justification', 'advertising');
      let start = Date.now();
      await page.keyboard.press('Enter');
      await gone(viewer, 'buy this');
      within(start, "a retract by key was on the viewer's page");
      await said(page, 'Retracted');

      await choose(page, 'and that');
      await page.keyboard.press('b');
      await asked(page);
      await page.selectOption('#ask-purge', 'all');
      await page.fill('#ask-justification', 'advertising again');
      start = Date.now();
      await page.press('#ask-justification', 'Enter');
      await gone(viewer, 'and that');
      within(start, "a ban with everything taken back was on the viewer's page");
      await said(page, 'Banned');
      const banned = await postAs(room, { id: 'spammer', name: 'Spammer' }, 'once more', 403);
      check(banned.code === 'banned', `a banned user: ${JSON.stringify(banned)}`);

      // The user card has what was said and done, retracted comments too; then the ban is taken back by its undo line.
      await choose(page, 'cheering 7');
      await page.keyboard.press('u');
      await page.waitForFunction(() => document.querySelector('#user .past')?.textContent.includes('cheering 7'));
      await page.keyboard.press('z');
      await said(page, 'Undone');
      await postAs(room, { id: 'spammer', name: 'Spammer' }, 'forgiven');
      await shows(viewer, 'forgiven');
      await choose(page, 'forgiven');
      await page.keyboard.press('u');
      await page.waitForFunction(() => {
        const card = document.getElementById('user').textContent;
        return card.includes('buy this (retracted)') && card.includes('ban lifted') && card.includes('Not banned here');
      });
      await page.screenshot({ path: path.join(screens, 'console-user-card.png') });
      await close(page, viewer);
    },

    async 'slow mode, state, a pin and a timeout by keyboard, each taken back by its undo line'({ browser, url, data, put, postAs }) {
      const room = 'derby:undo';
      await put(room, { title: 'Undo' });
      const first = await postAs(room, { id: 'fan', name: 'Fan' }, 'pin me');
      const viewer = await open(browser, `${url}/rooms/${room}`);
      await live(viewer);
      const secret = token(data, 'mod-mia', 'room-mod', ['derby*']);
      const page = await enter(browser, url, secret, room);
      await shows(page, 'pin me');
      const settings = async () => (await call(url, 'GET', `/admin/rooms/${encodeURIComponent(room)}`, secret)).body;

      await page.keyboard.press('s');
      await asked(page);
      await page.fill('#ask-seconds', '30');
      await answer(page, 'a flood');
      await shows(viewer, 'Slow mode: one comment every 30 s.');
      check((await settings()).slow_mode_seconds === 30, 'slow mode is set');
      await said(page, 'Slow mode: one comment in 30 seconds');
      await page.keyboard.press('z');
      await shows(viewer, 'Slow mode is off.');
      check((await settings()).slow_mode_seconds === 0, 'slow mode is back');

      await choose(page, 'pin me');
      await page.keyboard.press('p');
      await answer(page, 'worth reading');
      await page.waitForFunction(() => document.querySelector('#said .done .what')?.textContent === 'Pinned a comment');
      check(JSON.stringify((await settings()).pinned) === JSON.stringify([first.event_id]), 'it is pinned');
      await page.keyboard.press('z');
      await said(page, 'Undone: Pinned');
      check((await settings()).pinned.length === 0, 'it is not pinned any more');

      await page.selectOption('.facts select', 'closed');
      await answer(page, 'over');
      await shows(viewer, 'The room is closed.');
      await said(page, 'is closed');
      await page.selectOption('.facts select', 'scheduled');
      await asked(page);
      check((await page.textContent('dialog')).includes('Comments are taken, no scores yet.'), 'what a scheduled room takes is said as it is');
      await page.keyboard.press('Escape');
      await page.waitForFunction(() => document.querySelector('dialog') === null);
      await page.keyboard.press('z');
      await shows(viewer, 'The room is live.');

      await choose(page, 'pin me');
      await page.keyboard.press('t');
      await asked(page);
      await page.selectOption('#ask-seconds', '60');
      await answer(page, 'cool down');
      await said(page, 'Timed out');
      await postAs(room, { id: 'fan', name: 'Fan' }, 'still here?', 403);
      await page.keyboard.press('z');
      await said(page, 'Undone: Timed out');
      await postAs(room, { id: 'fan', name: 'Fan' }, 'back again');

      // What was done is in the audit with its reason, and so is its undoing.
      await page.goto(`${url}/console#/audit`);
      await page.waitForSelector('.filters');
      await page.fill('.filters input', room);
      await page.click('.filters button');
      await page.waitForFunction(() => document.querySelectorAll('.audit li').length >= 8);
      const audit = await page.textContent('.audit');
      for (const wanted of ['a flood', 'undo: a flood', 'worth reading', 'undo: cool down', 'slow_mode_seconds: 30', 'mod-mia']) check(audit.includes(wanted), `${wanted} is not in the audit: ${audit}`);
      await close(page, viewer);
    },

    async 'several comments are retracted and their authors banned in one go'({ browser, url, data, put, postAs }) {
      const room = 'derby:bulk';
      await put(room, { title: 'Bulk' });
      await postAs(room, { id: 'good', name: 'Good' }, 'let it stand');
      for (let n = 0; n < 5; n += 1) await postAs(room, { id: `bot${n}`, name: `Bot ${n}` }, `raid ${n}`);
      const viewer = await open(browser, `${url}/rooms/${room}`);
      await live(viewer);
      await shows(viewer, 'raid 4');
      const page = await enter(browser, url, token(data, 'mod-mia', 'room-mod', ['derby*']), room);
      await shows(page, 'raid 4');
      await page.keyboard.press('k');
      for (let n = 0; n < 4; n += 1) await page.keyboard.press('K');
      await page.waitForFunction(() => document.querySelector('.aim').textContent === '5 comments selected');
      await page.screenshot({ path: path.join(screens, 'console-bulk.png') });
      await page.keyboard.press('b');
      await asked(page);
      check((await page.textContent('dialog')).includes('Ban 5 users?'), 'how many is said');
      await answer(page, 'a raid');
      await said(page, 'Banned Bot');
      await page.waitForFunction(() => document.querySelector('.aim').textContent !== '5 comments selected');
      await postAs(room, { id: 'bot3', name: 'Bot 3' }, 'more', 403);
      await page.keyboard.press('g');
      await page.keyboard.press('k');
      for (let n = 0; n < 4; n += 1) await page.keyboard.press('K');
      await page.keyboard.press('r');
      await answer(page, 'a raid');
      for (let n = 0; n < 5; n += 1) await gone(viewer, `raid ${n}`);
      await shows(viewer, 'let it stand');
      // A viewer may see the last retract before the console has its answer.
      await page.waitForFunction(() => document.querySelector('#said .done .what').textContent.startsWith('Retracted'));
      await page.keyboard.press('z');
      await said(page, 'Undone: Banned');
      for (let n = 0; n < 5; n += 1) await postAs(room, { id: `bot${n}`, name: `Bot ${n}` }, `sorry ${n}`);
      await close(page, viewer);
    },

    async 'each role opens what it may and is refused the rest by the server'({ browser, url, data, put }) {
      await put('derby:roles', { title: 'Mine' });
      await put('other', { title: 'Not mine' });
      const all = 'Rooms,Bans,Access,Banners,Gateways,Audit';
      const menus = { 'room-mod': 'Rooms,Audit', 'region-ops': all, admin: all };
      for (const role of ['viewer', 'publisher', 'backend', 'room-mod', 'region-ops', 'admin']) {
        const secret = token(data, `a-${role}`, role, role === 'room-mod' ? ['derby*'] : []);
        const page = await open(browser, `${url}/console`);
        if (menus[role] === undefined) {
          await page.fill('#enter-token', secret);
          await page.press('#enter-token', 'Enter');
          await page.waitForFunction(() => document.getElementById('enter-note').textContent.startsWith('This token opens nothing here'));
          check(await page.$eval('#nav', (nav) => nav.hidden), `${role} is shown a menu`);
          check(await page.evaluate(() => sessionStorage.length) === 0, `the token of ${role} is kept`);
        } else {
          await signIn(page, url, secret);
          const menu = await page.$$eval('#nav a', (all) => all.map((a) => a.textContent).join());
          check(menu === menus[role], `${role} is shown ${menu}`);
          await page.waitForSelector('tr[data-room="derby:roles"]');
          check((await page.$('tr[data-room="other"]') !== null) === (role !== 'room-mod'), `${role} and a room of others`);
          check(!page.url().includes(secret) && await page.evaluate(() => localStorage.length) === 0, 'the token is in this tab alone');
          if (role === 'room-mod') {
            // A view that is not for it is not opened by its address either, and a room of others is refused by the server.
            await page.goto(`${url}/console#/gateways`);
            await page.waitForSelector('tr[data-room]');
            await page.goto(`${url}/console#/room/other`);
            await page.waitForFunction(() => !document.querySelector('.fault').hidden);
            await page.click('#leave');
            await page.waitForSelector('#enter');
            check(await page.evaluate(() => sessionStorage.length) === 0, 'signing out forgets the token');
          }
        }
        await close(page);
        // The routes behind it, without the page.
        const may = {
          rooms: ['room-mod', 'region-ops', 'admin'], gateways: ['region-ops', 'admin'], audit: ['region-ops', 'admin'],
          own: ['room-mod', 'region-ops', 'admin'], others: ['region-ops', 'admin'], history: ['room-mod', 'region-ops', 'admin', 'backend'],
        };
        const routes = {
          rooms: '/admin/rooms', gateways: '/admin/gateways', audit: '/admin/audit', own: '/admin/audit?room=derby:roles', others: '/admin/audit?room=other', history: '/admin/rooms/derby:roles/history?user=x',
        };
        for (const [name, where] of Object.entries(routes)) {
          const { status } = await call(url, 'GET', where, secret);
          check((status === 200) === may[name].includes(role) && (status === 200 || status === 403), `${role} at ${where}: ${status}`);
        }
      }
      const page = await open(browser, `${url}/console`);
      await page.fill('#enter-token', 'eyJhbGciOiJub25lIn0.e30.');
      await page.press('#enter-token', 'Enter');
      await page.waitForFunction(() => document.getElementById('enter-note').dataset.kind === 'bad');
      await page.context().close();
    },

    async 'what users wrote is text everywhere in the console and no script runs inline'({ browser, url, data, put, postAs }) {
      const room = 'derby:hostile';
      await put(room, { title: HOSTILE[0] });
      for (const [n, body] of HOSTILE.entries()) await postAs(room, { id: `h${n}`, name: body.slice(0, 32) }, `${body} ${n}`);
      const headers = (await fetch(`${url}/console`)).headers;
      const policy = headers.get('content-security-policy');
      check(/script-src 'self';/.test(policy) && !/unsafe|\*|data:/.test(policy) && policy.includes("frame-ancestors 'none'"), `policy: ${policy}`);
      const html = await (await fetch(`${url}/console`)).text();
      check(!/<script(?![^>]*src=)/.test(html) && !/ on\w+=|style=|javascript:/.test(html), 'something of the page is inline');
      const page = await open(browser, `${url}/console`);
      await page.addInitScript(() => { addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective}`)); window.alert = () => console.error('a script ran'); });
      const secret = token(data, 'olive', 'admin');
      await signIn(page, url, secret);
      await page.waitForSelector(`tr[data-room="${room}"]`);
      check((await page.textContent(`tr[data-room="${room}"]`)).includes(HOSTILE[0]), 'the title is text');
      await openRoom(page, url, room);
      for (const [n, body] of HOSTILE.entries()) await shows(page, `${body.replace('\u202e', '')} ${n}`);
      await page.keyboard.press('k');
      await page.keyboard.press('u');
      await page.waitForFunction(() => document.querySelectorAll('#user .past li').length > 0);
      await page.keyboard.press('p');
      await answer(page, '<b>why</b>');
      await said(page, 'Pinned');
      await page.waitForFunction(() => document.querySelector('.pins')?.textContent.includes('javascript:'));
      const markup = await page.$$eval('#view img, #view script, #view b, #view i, #said b', (all) => all.length);
      check(markup === 0, 'a text became markup');
      await page.goto(`${url}/console#/audit`);
      await page.waitForFunction(() => document.querySelector('.audit')?.textContent.includes('<b>why</b>'));
      check(await page.$('.audit b') === null, 'a justification became markup');
      await close(page);
    },

    async 'what the console works out needs no document'({ browser, url }) {
      const page = await open(browser, `${url}/console`);
      await page.evaluate(async () => {
        const m = await import('/assets/console-model.js');
        const is = (got, wanted) => { if (JSON.stringify(got) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(got)} is not ${JSON.stringify(wanted)}`); };
        const may = (claims) => { const { moderates, operates, exports } = m.rights(claims); return [moderates, operates, exports]; };
        is(may({ sub: 'a', roles: ['room-mod'] }), [false, false, false]);
        is(may({ sub: 'a', roles: ['room-mod'], rooms: ['x*'] }), [true, false, false]);
        is(may({ sub: 'a', roles: ['region-ops'] }), [true, true, false]);
        is(may({ sub: 'a', roles: ['backend'] }), [false, false, true]);
        let history = m.measure([], { accepted: 10, viewers: 3 }, 0);
        history = m.measure(history, { accepted: 30, viewers: 4 }, 2000);
        is([history[1].rate, history[1].viewers], [10, 4]);
        // A counter that fell back began anew with its process, and a history has its length.
        is(m.measure(history, { accepted: 5 }, 4000)[2].rate, 0);
        for (let n = 0; n < 200; n += 1) history = m.measure(history, {}, 10_000 + n);
        is(history.length, m.SAMPLES_MAX);
        is(m.line([0, 5, 10], 20, 12, 3), '0.0,11.0 10.0,6.0 20.0,1.0');
        is(m.line([], 20, 12), '');
        const text = (a, b, all) => `x_bucket{lane="comment",le="0.1"} ${a}\nx_bucket{lane="comment",le="0.5"} ${b}\nx_bucket{lane="comment",le="+Inf"} ${all}\nx_bucket{lane="priority",le="0.1"} 9\nx_sum 1\n`;
        const read = (...n) => m.buckets(text(...n), 'x', (labels) => labels.includes('lane="comment"'));
        is([m.quantile(read(0, 0, 0), read(98, 100, 100), 0.99), m.quantile(read(0, 0, 0), read(99, 100, 100), 0.99), m.quantile(read(9, 9, 9), read(9, 9, 9), 0.99)], [0.5, 0.1, null]);
        is(m.quantile(read(0, 0, 0), read(0, 0, 10), 0.99) === Infinity, true);
        const comments = [1, 2, 3].map((id) => ({ id, user: { id: `u${id % 2}` } }));
        is([m.moved(comments, null, -1), m.moved(comments, 3, -1), m.moved(comments, 1, -1), m.moved(comments, 3, 1), m.moved([], null, 1)], [3, 2, 1, 3, null]);
        is(m.targets(comments, new Set(), 2).map((c) => c.id), [2]);
        is(m.targets(comments, new Set([1, 3]), 2).map((c) => c.id), [1, 3]);
        is(m.authors(comments).map((u) => u.id), ['u1', 'u0']);
        is([m.seconds(60), m.seconds(90), m.seconds(3600), m.seconds(172_800), m.seconds(0), m.count(1000, 'viewer')], ['1 minute', '90 seconds', '1 hour', '2 days', '0 seconds', '1,000 viewers']);
        is(m.pinnedWith([5, 6], 7), [7, 5, 6]);
        is(m.pinnedWith([5, 6], 5), [6]);
        is(m.pinnedWith([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 11).length, 10);
        const why = m.undoing('ü'.repeat(100));
        is([new TextEncoder().encode(why).length <= 200, why.startsWith('undo: ü')], [true, true]);
        is([m.left(null, 0), m.left('1970-01-01T00:00:05.000Z', 2000), m.left('1970-01-01T00:00:05.000Z', 9000)], [undefined, 3000, 1]);
        is([m.shortcut({ key: 'r', target: { tagName: 'BODY' } }), m.shortcut({ key: 'r', target: { tagName: 'INPUT' } }), m.shortcut({ key: 'r', ctrlKey: true, target: { tagName: 'BODY' } })], ['r', null, null]);
      });
      await page.context().close();
    },

    async 'banners and gateways are run from the console'({ browser, url, data }) {
      const viewer = await open(browser, `${url}/rooms/desk`);
      await live(viewer);
      const page = await enter(browser, url, token(data, 'olive', 'region-ops'));
      await page.click('#nav a[data-view="banners"]');
      await page.waitForFunction(() => document.querySelector('.view h1').textContent === 'Banners');
      await page.keyboard.press('n');
      await asked(page);
      await page.fill('#ask-body', 'Extra time starts <now>');
      await answer(page, 'asked by the desk');
      await viewer.waitForFunction(() => document.querySelector('#banners .banner-text')?.textContent === 'Extra time starts <now>');
      await page.waitForSelector('[data-banner]');
      await page.screenshot({ path: path.join(screens, 'console-banner-stands.png') });
      await page.keyboard.press('z');
      await viewer.waitForFunction(() => !document.getElementById('banners').textContent.includes('Extra time'));

      await page.click('#nav a[data-view="gateways"]');
      await page.click('[data-gateway] button:has-text("Admission")');
      await asked(page);
      await page.fill('#ask-rate', '500');
      await answer(page, 'a quiet door');
      await page.waitForFunction(() => document.querySelector('[data-gateway]').textContent.includes('500 a second'));
      await page.keyboard.press('z');
      await page.waitForFunction(() => document.querySelector('[data-gateway]').textContent.includes('no limit'));
      await page.click('[data-gateway] button:has-text("Drain")');
      await asked(page);
      check(/\d+ streams? closed/.test(await page.textContent('dialog')), 'how many are sent away is said');
      await page.fill('#ask-seconds', '60');
      await answer(page, 'a new version');
      await page.waitForFunction(() => document.querySelector('[data-gateway] .state-name').textContent === 'draining');
      await page.screenshot({ path: path.join(screens, 'console-drain.png') });
      await page.keyboard.press('z');
      await page.waitForFunction(() => document.querySelector('[data-gateway] .state-name').textContent === 'open');
      await close(page, viewer);
    },

    async 'the console fits a phone and a desktop, in light and dark'({ browser, url, data, put, postAs }) {
      const room = 'derby:looks';
      await put(room, { title: 'Derby: North Stand against South Stand, second leg' });
      for (let n = 0; n < 30; n += 1) await postAs(room, { id: `fan${n % 5}`, name: ['Ann', 'Bo', 'Мария', 'محمد', 'A name of some length, I say'][n % 5] }, n % 3 ? `what a game this is, number ${n}` : 'a longer comment that goes on for a while, because somebody always has a lot to say about the referee and the weather');
      const secret = token(data, 'olive', 'admin');
      for (const [name, options] of SCREENS) {
        const page = await open(browser, `${url}/console`, options);
        await page.screenshot({ path: path.join(screens, `console-enter-${name}.png`) });
        await signIn(page, url, secret);
        await page.waitForSelector('tr[data-room] .chart');
        const fits = async (what) => {
          check(await noSideways(page), `${what} scrolls sideways on ${name}`);
          await page.screenshot({ path: path.join(screens, `console-${what}-${name}.png`) });
        };
        await fits('rooms');
        await openRoom(page, url, room);
        await shows(page, 'number 29');
        await page.keyboard.press('k');
        await page.keyboard.press('x');
        await fits('room');
        await page.keyboard.press('r');
        await asked(page);
        await fits('ask');
        await page.keyboard.press('Escape');
        await page.waitForFunction(() => document.querySelector('dialog') === null);
        await page.keyboard.press('?');
        await asked(page);
        await fits('keys');
        await page.keyboard.press('Escape');
        await page.waitForFunction(() => document.querySelector('dialog') === null);
        for (const view of ['banners', 'gateways', 'audit']) {
          await page.goto(`${url}/console#/${view}`);
          await page.waitForFunction((wanted) => document.querySelector('.view h1')?.textContent.toLowerCase() === wanted, view);
          if (view === 'gateways') await page.waitForSelector('[data-gateway]');
          if (view === 'audit') await page.waitForSelector('.audit li');
          await fits(view);
        }
        check(await allNamed(page), 'a control has no name');
        await close(page);
      }
    },
  };
};
