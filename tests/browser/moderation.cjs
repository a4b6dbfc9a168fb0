// What a moderator and an operator do beside the feed, in a real browser: the queue for review, reports, bans with what goes
// with them, pins with an end, tokens and blackouts; and what a viewer's page shows of it a moment later.
const fs = require('node:fs');
const path = require('node:path');

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live, shows, screens, token, alone }) => {
  const { enter, openRoom, said, asked, answer, choose, within, close, allNamed, gone, noSideways, call, SCREENS } = require('./desk.cjs')({ open, check, live });

  /** A server of its own where `dumb` is flagged and regions are told by a header; `run` is given what a test does there. */
  const flagging = (folder) => {
    const flags = path.join(folder, 'flags.txt');
    fs.writeFileSync(flags, '*dumb*\n');
    return [`moderation.flag_file=${flags}`, 'region.header=x-viewer-region', 'trusted_proxies=127.0.0.0/8'];
  };
  const moderated = (run) => alone(flagging, async ({ url, data, admin, put }) => {
    let key = 0;
    const say = async (room, user, body, status = 200) => {
      const said = await call(url, 'POST', `/v1/rooms/${room}/comments`, token(data, user, 'publisher'), { client_msg_id: `m${key += 1}`, body });
      check(said.status === status, `${user} says ${body}: ${said.status} ${JSON.stringify(said.body)}`);
      return said.body;
    };
    await run({ url, data, admin, put, say });
  });

  const queue = (page, n) => page.waitForFunction((wanted) => document.querySelectorAll('#held .queue li').length === wanted, n);
  const report = async (url, data, room, event, users, reason) => {
    for (const user of users) {
      const { status } = await call(url, 'POST', `/v1/rooms/${room}/reports`, token(data, user, 'publisher'), { event_id: event, reason });
      check(status === 204, `a report: ${status}`);
    }
  };
  const list = (where) => (page, wanted) => page.waitForFunction(([at, names]) => [...document.querySelectorAll(`${at} [data-ban]`)].map((li) => li.dataset.ban).join() === names, [where, wanted.join()]);
  const bansHere = list('#bans');
  const bansOfSite = list('.view-bans');

  return {
    async 'what is held is approved and denied by key, and a viewer has it within a second'({ browser }) {
      await moderated(async ({ url, data, put, say }) => {
        const room = 'derby:held';
        await put(room, { title: 'Held', moderation_policy: 'pre-moderate', hold_flagged: true });
        const viewer = await open(browser, `${url}/rooms/${room}`);
        await live(viewer);
        const page = await enter(browser, url, token(data, 'mod-mia', 'room-mod', ['derby*']), room);
        for (const text of ['dumb luck', '<b>dumb</b> referee', 'dumb and dumber']) await say(room, 'ann', text, 202);
        await queue(page, 3);
        check(await page.$eval('#held .current', (li) => li.textContent.includes('dumb luck')), 'the oldest is under the keys');
        await page.keyboard.press('a');
        await asked(page);
        check((await page.textContent('dialog')).includes('“dumb luck” by ann'), 'what will be shown is said');
        await page.fill('#ask-justification', 'it is fine');
        const start = Date.now();
        await page.press('#ask-justification', 'Enter');
        await shows(viewer, 'dumb luck');
        within(start, "an approval by key was on the viewer's page");
        await said(page, 'Approved');
        await queue(page, 2);
        check(await page.$('#held b') === null, 'a held text became markup');

        await page.keyboard.press('n');
        check(await page.$eval('#held .current', (li) => li.textContent.includes('dumb and dumber')), 'n goes to the next');
        await page.keyboard.press('d');
        await asked(page);
        check((await page.textContent('dialog')).includes('cannot be taken back'), 'a denial says that it is for good');
        await answer(page, 'no names');
        await queue(page, 1);
        await page.screenshot({ path: path.join(screens, 'moderation-held.png') });
        await page.keyboard.press('d');
        await answer(page, 'no names');
        await page.waitForFunction(() => document.getElementById('held').hidden);
        // What was shown can be taken back, which its undo line says.
        await page.waitForFunction(() => [...document.querySelectorAll('#said .undo')].some((b) => b.textContent.includes('Retract it for good')));
        await page.keyboard.press('z');
        await gone(viewer, 'dumb luck');
        check(!(await viewer.textContent('#feed')).includes('referee'), 'what was denied is shown to nobody');
        await close(page, viewer);
      });
    },

    async 'a ban with a purge empties a viewer’s page of that user alone, a shadow ban is not told'({ browser, url, data, put, postAs }) {
      const room = 'derby:purge';
      await put(room, { title: 'Purge' });
      for (let n = 0; n < 4; n += 1) await postAs(room, { id: 'spammer', name: 'Spammer' }, `buy this ${n}`);
      await postAs(room, { id: 'fan', name: 'Fan' }, 'what a goal');
      const viewer = await open(browser, `${url}/rooms/${room}`);
      await live(viewer);
      await shows(viewer, 'what a goal');
      const page = await enter(browser, url, token(data, 'mod-mia', 'room-mod', ['derby*']), room);
      await shows(page, 'buy this 3');
      await choose(page, 'buy this 3');
      await page.keyboard.press('b');
      await asked(page);
      check(await page.$('#ask-scope') === null, 'a room’s moderator is offered the whole site');
      // A purge would tell its user of a shadow ban: said before it is asked.
      await page.selectOption('#ask-purge', '5');
      await page.check('#ask-shadow');
      await page.fill('#ask-justification', 'advertising');
      await page.press('#ask-justification', 'Enter');
      await page.waitForFunction(() => document.querySelector('dialog [role="alert"]')?.textContent.includes('shadow ban takes nothing back'));
      await page.uncheck('#ask-shadow');
      await page.selectOption('#ask-seconds', '600');
      const told = await page.textContent('dialog');
      for (const wanted of ['may watch and not speak, for 10 minutes', 'Taken back: what it said in the last 5 minutes', 'stays gone']) check(told.includes(wanted), `${wanted} is not in ${told}`);
      await page.screenshot({ path: path.join(screens, 'moderation-ban.png') });
      const start = Date.now();
      await page.click('#ask-do');
      await viewer.waitForFunction(() => !document.getElementById('feed').textContent.includes('buy this'));
      within(start, "a ban with a purge had emptied the viewer's page");
      check((await viewer.textContent('#feed')).includes('what a goal'), 'others stay');
      await bansHere(page, ['spammer']);
      await postAs(room, { id: 'spammer', name: 'Spammer' }, 'more', 403);

      // Lifted from the list, and put up again by its undo line.
      await page.click('#bans [data-ban="spammer"] button');
      await answer(page, 'it said sorry');
      await bansHere(page, []);
      await postAs(room, { id: 'spammer', name: 'Spammer' }, 'thank you');
      await page.keyboard.press('z');
      await bansHere(page, ['spammer']);
      await postAs(room, { id: 'spammer', name: 'Spammer' }, 'hm', 403);

      await choose(page, 'what a goal');
      await page.keyboard.press('b');
      await asked(page);
      await page.check('#ask-shadow');
      await answer(page, 'ads');
      await said(page, 'Shadowed Fan');
      await postAs(room, { id: 'fan', name: 'Fan' }, 'nobody hears this');
      await postAs(room, { id: 'bo', name: 'Bo' }, 'after it');
      await shows(page, 'nobody hears this');
      await shows(viewer, 'after it');
      check(!(await viewer.textContent('#feed')).includes('nobody hears'), 'a shadowed comment is shown');
      await page.waitForFunction(() => document.querySelector('#bans [data-ban="fan"]')?.textContent.includes('shadow'));
      await choose(page, 'nobody hears this');
      await page.keyboard.press('u');
      await page.waitForFunction(() => document.querySelector('#user .banned')?.textContent.startsWith('Shadowed here'));
      await page.click('#user .standing button');
      await answer(page, 'a mistake');
      await page.waitForFunction(() => document.querySelector('#user .standing')?.textContent.includes('Not banned here'));
      await close(page, viewer);
    },

    async 'what viewers reported is taken under the keys, though the feed has it no more'({ browser, url, data, put, postAs }) {
      const room = 'derby:reports';
      await put(room, { title: 'Reports' });
      const old = await postAs(room, { id: 'troll', name: 'Troll' }, 'an old <i>insult</i>');
      for (let n = 0; n < 60; n += 1) await postAs(room, { id: 'fan', name: 'Fan' }, `cheering ${n}`);
      const fresh = await postAs(room, { id: 'eve', name: 'Eve' }, 'buy this');
      await report(url, data, room, old.event_id, ['ann', 'bo', 'cy'], 'an insult');
      await report(url, data, room, fresh.event_id, ['ann'], 'ads');
      const page = await enter(browser, url, token(data, 'mod-mia', 'room-mod', ['derby*']), room);
      await page.waitForFunction(() => document.querySelector('#reports li')?.textContent.includes('an old <i>insult</i>'));
      check((await page.$$eval('#reports li', (all) => all.map((li) => li.textContent).join('|'))).match(/3 users: an insult.*\|.*buy this.*1 user: ads/) !== null, 'the most reported is first');
      check(await page.$('#reports i') === null, 'a reported text became markup');
      await page.keyboard.press('v');
      await page.waitForFunction(() => document.querySelector('.aim').textContent === 'the reported comment');
      await page.screenshot({ path: path.join(screens, 'moderation-reports.png') });
      await page.keyboard.press('r');
      await asked(page);
      check((await page.textContent('dialog')).includes('“an old <i>insult</i>” by Troll'), 'what will be retracted is said');
      await answer(page, 'an insult');
      await page.waitForFunction(() => document.querySelectorAll('#reports li').length === 1);
      await page.keyboard.press('v');
      await page.keyboard.press('b');
      await asked(page);
      check((await page.textContent('dialog h2')) === 'Ban Eve (eve)?', 'its author is meant');
      await page.selectOption('#ask-purge', '10');
      await answer(page, 'ads');
      await page.waitForFunction(() => document.getElementById('reports').hidden);
      await bansHere(page, ['eve']);
      await close(page);
    },

    async 'a ban of the whole site is put up, listed and lifted, and its user’s page is closed'({ browser, url, data, put, postAs }) {
      const room = 'derby:site';
      await put(room, { title: 'Site' });
      await postAs(room, { id: 'raider', name: 'Raider' }, 'everywhere');
      const viewer = await open(browser, `${url}/rooms/${room}`);
      await live(viewer);
      await shows(viewer, 'everywhere');
      const secret = token(data, 'olive', 'region-ops');
      const page = await enter(browser, url, secret, room);
      await shows(page, 'everywhere');
      await choose(page, 'everywhere');
      await page.keyboard.press('b');
      await asked(page);
      await page.selectOption('#ask-scope', 'site');
      await page.selectOption('#ask-purge', '60');
      await page.fill('#ask-justification', 'a raid');
      await page.press('#ask-justification', 'Enter');
      await page.waitForFunction(() => document.querySelector('dialog [role="alert"]')?.textContent.includes('last 10 minutes'));
      await page.selectOption('#ask-purge', '10');
      check((await page.textContent('dialog')).includes('In every room of the site: may neither speak nor watch'), 'how far it reaches is said');
      await page.click('#ask-do');
      await viewer.waitForFunction(() => !document.getElementById('feed').textContent.includes('everywhere'));
      await postAs('derby:another', { id: 'raider', name: 'Raider' }, 'here too?', 403);

      await page.click('#nav a[data-view="bans"]');
      await bansOfSite(page, ['raider']);
      const row = await page.textContent('[data-ban="raider"]');
      for (const wanted of ['until it is lifted', 'olive', 'a raid']) check(row.includes(wanted), `${wanted} is not in ${row}`);
      await page.keyboard.press('n');
      await asked(page);
      await page.fill('#ask-user', 'second');
      await page.selectOption('#ask-seconds', '3600');
      await answer(page, 'of the same raid');
      await bansOfSite(page, ['raider', 'second']);
      await page.screenshot({ path: path.join(screens, 'moderation-site-bans.png') });
      await page.fill('#look', 'second');
      await bansOfSite(page, ['second']);
      await page.fill('#look', '');
      await bansOfSite(page, ['raider', 'second']);
      await page.click('[data-ban="raider"] button');
      await answer(page, 'a mistake');
      await bansOfSite(page, ['second']);
      await postAs('derby:another', { id: 'raider', name: 'Raider' }, 'back again');
      await page.keyboard.press('z');
      await bansOfSite(page, ['raider', 'second']);
      // A user's card has both kinds.
      await openRoom(page, url, 'derby:another');
      await shows(page, 'back again');
      await choose(page, 'back again');
      await page.keyboard.press('u');
      await page.waitForFunction(() => { const t = document.querySelector('#user .standing')?.textContent ?? ''; return t.includes('Not banned here') && t.includes('Banned from the site'); });
      for (const user of ['raider', 'second']) await call(url, 'DELETE', '/admin/bans', secret, { user_id: user, justification: 'browser test' });
      await close(page, viewer);
    },

    async 'a pin has an end, which the room’s facts name and undo keeps'({ browser, url, data, put, postAs }) {
      const room = 'derby:pins';
      await put(room, { title: 'Pins' });
      const comment = await postAs(room, { id: 'fan', name: 'Fan' }, 'pin me');
      const secret = token(data, 'mod-mia', 'room-mod', ['derby*']);
      const page = await enter(browser, url, secret, room);
      await shows(page, 'pin me');
      const ends = async () => (await call(url, 'GET', `/admin/rooms/${encodeURIComponent(room)}`, secret)).body.pin_ends;
      await choose(page, 'pin me');
      await page.keyboard.press('p');
      await asked(page);
      await page.selectOption('#ask-length', '900');
      check((await page.textContent('dialog')).includes('taken down by itself after 15 minutes'), 'its end is said');
      await answer(page, 'worth reading');
      await page.waitForFunction(() => document.querySelector('.pins')?.textContent.includes('until '));
      const end = (await ends())[comment.event_id];
      check(Math.abs(Date.parse(end) - Date.now() - 900_000) < 60_000, `it ends at ${end}`);
      await page.click('.pins button');
      await answer(page, 'read enough');
      await page.waitForFunction(() => document.querySelector('.pins') === null);
      await page.keyboard.press('z');
      await page.waitForFunction(() => document.querySelector('.pins')?.textContent.includes('until '));
      check((await ends())[comment.event_id] === end, 'it is pinned up to the same end again');
      await close(page);
    },

    async 'tokens are revoked and an outage is declared, with their reasons, and both are taken back'({ browser }) {
      await moderated(async ({ url, data, say }) => {
        await say('stand', 'ann', 'hello');
        const page = await enter(browser, url, token(data, 'olive', 'region-ops'));
        await page.click('#nav a[data-view="access"]');
        await page.waitForFunction(() => document.getElementById('outage')?.textContent.includes('no outage declared'));
        await page.keyboard.press('n');
        await asked(page);
        check(!(await page.$$eval('#ask-of option', (all) => all.map((o) => o.value))).includes('key'), 'a key is an admin’s to revoke');
        await page.fill('#ask-name', 'ann');
        check((await page.textContent('dialog')).includes('Every token of the user ann'), 'what it does is said');
        await answer(page, 'a stolen phone');
        await page.waitForSelector('[data-revoked="ann"]');
        await say('stand', 'ann', 'still here', 401);
        await page.keyboard.press('z');
        await page.waitForFunction(() => document.querySelector('[data-revoked]') === null);
        await say('stand', 'ann', 'here again');
        await page.click('[data-key="declare"]');
        await asked(page);
        await page.selectOption('#ask-seconds', '3600');
        await answer(page, 'the provider is down');
        await page.waitForFunction(() => { const t = document.getElementById('outage').textContent; return t.includes('outage declared') && t.includes('olive: the provider is down'); });
        await page.screenshot({ path: path.join(screens, 'moderation-access.png') });
        const { body } = await call(url, 'GET', '/admin/access', token(data, 'olive', 'region-ops'));
        check(Math.abs(Date.parse(body.outage.until_ts) - Date.now() - 3_600_000) < 60_000, `it ends at ${body.outage.until_ts}`);
        await page.click('[data-key="end"]');
        await answer(page, 'it is back');
        await page.waitForFunction(() => document.getElementById('outage').textContent.includes('no outage declared'));
        await close(page);
      });
    },

    async 'an erase says what it does, wants the id once more, and nothing of the user is left on a screen'({ browser, url, data, put, postAs }) {
      const room = 'derby:erase';
      await put(room, { title: 'Erase' });
      await postAs(room, { id: 'u-gone', name: 'Goner' }, 'remember me');
      await postAs(room, { id: 'fan', name: 'Fan' }, 'what a goal');
      const viewer = await open(browser, `${url}/rooms/${room}`);
      await live(viewer);
      await shows(viewer, 'remember me');
      const card = async (role) => {
        const page = await enter(browser, url, token(data, 'olive', role), room);
        await shows(page, 'remember me');
        await choose(page, 'remember me');
        await page.keyboard.press('u');
        await page.waitForFunction(() => document.querySelector('#user .standing')?.textContent.includes('Not banned here'));
        return page;
      };
      const button = (page) => page.$$eval('#user button', (all) => all.map((b) => b.textContent).filter((t) => t.startsWith('Erase')).length);
      const operator = await card('region-ops');
      check(await button(operator) === 0, 'an erase is an admin’s alone');
      const page = await card('admin');
      check(await button(page) === 1, 'an admin is offered the erase');
      await page.click('#user button:text-is("Erase…")');
      await asked(page);
      const told = await page.textContent('dialog');
      for (const wanted of ['Erase Goner (u-gone)?', 'in every room, is taken back, 1 comment of it in this view', 'in no file of the server', 'It is no ban', 'cannot be undone']) check(told.includes(wanted), `${wanted} is not in ${told}`);
      check(await page.inputValue('#ask-justification') === '', 'a reason of before may name somebody');
      await page.screenshot({ path: path.join(screens, 'moderation-ask-erase.png') });
      const refused = (text) => page.waitForFunction((wanted) => document.querySelector('dialog [role="alert"]')?.textContent.includes(wanted), text);
      await page.fill('#ask-user', 'fan');
      await page.fill('#ask-justification', 'request 4711');
      await page.click('#ask-do');
      await refused('Type u-gone');
      await page.fill('#ask-user', 'u-gone');
      await page.fill('#ask-justification', 'u-gone wrote to us');
      await page.click('#ask-do');
      await refused('must not name the user');
      await page.fill('#ask-justification', 'request 4711');
      const start = Date.now();
      await page.click('#ask-do');
      await gone(viewer, 'remember me');
      within(start, "an erase had emptied the viewer's page of that user");
      check((await viewer.textContent('#feed')).includes('what a goal'), 'others stay');
      await said(page, 'Erased a user: number ');
      await page.waitForFunction(() => document.getElementById('user').hidden);
      await gone(page, 'remember me');
      const admin = token(data, 'olive', 'admin');
      const done = async () => (await call(url, 'GET', '/admin/erasures', admin)).body.pending.length === 0;
      const end = Date.now() + 60_000;
      while (!(await done())) check(Date.now() < end, 'the erase is done within a minute');
      const left = fs.readdirSync(data).filter((name) => fs.statSync(path.join(data, name)).isFile() && ['u-gone', 'Goner', 'remember me'].some((text) => fs.readFileSync(path.join(data, name)).includes(text)));
      check(left.length === 0, `the user is named in ${left}`);
      await close(page, operator, viewer);
    },

    async 'a room is hidden in a region, viewers there leave, and it is shown again'({ browser }) {
      await moderated(async ({ url, data, put }) => {
        await put('derby:hidden', { title: 'Hidden' });
        // A viewer of whom nobody says where it is counts as being there.
        const viewer = await open(browser, `${url}/rooms/derby:hidden`);
        await live(viewer);
        const page = await enter(browser, url, token(data, 'olive', 'admin'), 'derby:hidden', { extraHTTPHeaders: { 'x-viewer-region': 'FR' } });
        await page.click('[data-key="blackout"]');
        await asked(page);
        await page.fill('#ask-regions', 'gb, ie');
        check((await page.textContent('dialog')).includes('then everywhere but in GB, IE'), 'what it will be is said');
        await answer(page, 'no rights there');
        await viewer.waitForFunction(() => document.getElementById('state').dataset.state === 'stopped');
        await page.waitForFunction(() => document.querySelector('.facts').textContent.includes('GB, IE'));
        await page.keyboard.press('z');
        await page.waitForFunction(() => document.querySelector('.facts').textContent.includes('nowhere'));
        await viewer.reload();
        await live(viewer);
        await Promise.all([page.context().close(), viewer.context().close()]);
      });
    },

    async 'lists and changes of moderation are refused without the role, by page and by server'({ browser, url, data, put }) {
      await put('derby:refused', { title: 'Refused' });
      await put('other', { title: 'Not mine' });
      const page = await enter(browser, url, token(data, 'mod-mia', 'room-mod', ['derby*']));
      for (const view of ['bans', 'access']) {
        await page.goto(`${url}/console#/${view}`);
        await page.waitForSelector('tr[data-room]');
      }
      await page.context().close();
      const why = { justification: 'browser test' };
      const routes = [
        ['GET', '/admin/bans'], ['POST', '/admin/bans', { user_id: 'x', ...why }], ['DELETE', '/admin/bans', { user_id: 'x', ...why }],
        ['GET', '/admin/access'], ['POST', '/admin/access/revocations', { user: 'x', ...why }], ['DELETE', '/admin/access/revocations', { user: 'x', ...why }],
        ['DELETE', '/admin/users/x', why], ['GET', '/admin/erasures'], ['GET', '/admin/ledger/verify'],
        ['PUT', '/admin/access/outage', { seconds: 60, ...why }], ['DELETE', '/admin/access/outage', why],
        ['GET', '/admin/rooms/other/held'], ['GET', '/admin/rooms/other/reports'], ['GET', '/admin/rooms/other/bans'],
        ['POST', '/admin/rooms/other/bans', { user_id: 'x', ...why }], ['POST', '/admin/rooms/other/pin', { event_id: 1, ...why }], ['POST', '/admin/rooms/other/held/7', { decision: 'approve', ...why }],
      ];
      for (const [role, rooms] of [['viewer', []], ['publisher', []], ['room-mod', ['derby*']], ['backend', []]]) {
        for (const [method, where, body] of routes) {
          const { status } = await call(url, method, where, token(data, 'nobody', role, rooms), body);
          check(status === 403, `${role}: ${method} ${where}: ${status}`);
        }
      }
    },

    async 'moderation fits a phone and a desktop, in light and dark'({ browser }) {
      await moderated(async ({ url, data, admin, put, say }) => {
        const room = 'derby:busy';
        await put(room, { title: 'Derby: North Stand against South Stand', moderation_policy: 'pre-moderate', hold_flagged: true });
        let last;
        for (let n = 0; n < 24; n += 1) last = await say(room, ['ann', 'bo', 'мария', 'محمد'][n % 4], n % 5 ? `what a game this is, number ${n}` : 'a longer comment that goes on for a while, because somebody always has a lot to say about the referee and the weather');
        for (const text of ['dumb luck', `a dumb, long one: ${'on and on '.repeat(24)}`, 'dumbnutswithoutaspace'.repeat(9)]) await say(room, 'bo', text, 202);
        await report(url, data, room, last.event_id, ['ann', 'bo', 'cy'], 'an insult to everybody who came to see this');
        await report(url, data, room, last.event_id - 2, ['ann'], 'ads');
        const ban = (where, body) => call(url, 'POST', where, admin, { justification: 'a raid by many', ...body });
        await ban(`/admin/rooms/${room}/bans`, { user_id: 'eve', seconds: 3600, reason: 'advertising again and again' });
        await ban(`/admin/rooms/${room}/bans`, { user_id: 'mal', shadow: true });
        await ban('/admin/bans', { user_id: 'raider', seconds: 86_400, reason: 'a raid' });
        await ban('/admin/bans', { user_id: 'a-user-with-a-rather-long-name:of-another-service/1234567890', shadow: true });
        await call(url, 'POST', '/admin/access/revocations', admin, { session: 'f2d1c5a6-8b1f-4f0e-9c54-7d9d8f1f2a3b', justification: 'a stolen phone' });
        await call(url, 'PUT', '/admin/access/outage', admin, { seconds: 3600, justification: 'the provider does not answer' });
        const pinned = { event_id: last.event_id, until: new Date(Date.now() + 900_000).toISOString(), justification: 'worth reading' };
        await call(url, 'POST', `/admin/rooms/${room}/pin`, admin, pinned);
        for (const [name, options] of SCREENS) {
          const page = await enter(browser, url, admin, room, options);
          const fits = async (what, full = false) => {
            check(await noSideways(page), `${what} scrolls sideways on ${name}`);
            await page.screenshot({ path: path.join(screens, `moderation-${what}-${name}.png`), fullPage: full });
          };
          await queue(page, 3);
          await page.waitForSelector('#reports li');
          await bansHere(page, ['eve', 'mal']);
          await fits('room');
          await fits('room-whole', true);
          await page.keyboard.press('v');
          await page.keyboard.press('u');
          await page.waitForFunction(() => document.querySelector('#user .standing')?.textContent.includes('Not banned from the site'));
          await fits('card', true);
          await page.keyboard.press('b');
          await asked(page);
          await page.selectOption('#ask-scope', 'site');
          await page.selectOption('#ask-purge', '5');
          await fits('ask-ban');
          await page.keyboard.press('Escape');
          await page.waitForFunction(() => document.querySelector('dialog') === null);
          await page.click('#user button:text-is("Erase…")');
          await asked(page);
          await fits('ask-erase');
          await page.keyboard.press('Escape');
          await page.waitForFunction(() => document.querySelector('dialog') === null);
          for (const [view, ready] of [['bans', '.view-bans [data-ban]'], ['access', '[data-revoked]']]) {
            await page.goto(`${url}/console#/${view}`);
            await page.waitForSelector(ready);
            await fits(view);
          }
          await page.keyboard.press('n');
          await asked(page);
          await fits('ask-revoke');
          await page.keyboard.press('Escape');
          await page.waitForFunction(() => document.querySelector('dialog') === null);
          await openRoom(page, url, room);
          await page.waitForSelector('#held li');
          check(await allNamed(page), 'a control has no name');
          await close(page);
        }
      });
    },

    async 'what moderation works out needs no document'({ browser, url }) {
      const page = await open(browser, `${url}/console`);
      await page.evaluate(async () => {
        const m = await import('/assets/console-model.js');
        const is = (got, wanted) => { if (JSON.stringify(got) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(got)} is not ${JSON.stringify(wanted)}`); };
        const at = (ms) => new Date(ms).toISOString();
        is([m.holds({ until_ts: null }, 5), m.holds({ until_ts: at(6) }, 5), m.holds({ until_ts: at(5) }, 5)], [true, true, false]);
        is([m.remaining(null, 0), m.remaining(at(90_500), 0), m.remaining(at(5), 9_000), m.remaining(at(5), 9_000, 60)], [undefined, 91, 1, 60]);
        is(m.regions(' gb, IE;gb-sct  gb\n'), ['GB', 'IE', 'GB-SCT']);
        is(m.regions(''), []);
        const erase = (user, justification) => m.eraseFault('u17', { user, justification }) === null;
        is([erase('u17', 'a request'), erase('u1', 'a request'), erase('', 'a request'), erase('u17', 'u17 asked')], [true, false, false, false]);
        // What was decided about gives its place to what follows it; what others decided moves nobody.
        is([m.stays([1, 2, 3], [1, 3], 2), m.stays([1, 2, 3], [2, 3], 2), m.stays([1, 2, 3], [1, 2], 3), m.stays([], [7], null), m.stays([1], [], 1)], [3, 2, 1, 7, null]);
        is([m.following([1, 2, 3], 1), m.following([1, 2, 3], 3), m.following([1, 2, 3], 9), m.following([1, 2, 3], null), m.following([], null)], [2, 1, 1, 1, null]);
        const fault = (scope, shadow, purge) => m.banFault({ scope, shadow, purge }) !== null;
        is([fault('room', false, 'all'), fault('room', true, '0'), fault('room', true, '5'), fault('site', false, '10'), fault('site', false, '60'), fault('site', false, 'all')], [false, false, true, false, true, true]);
        is([m.rights({ roles: ['admin'] }).keys, m.rights({ roles: ['region-ops'] }).keys], [true, false]);
      });
      await page.context().close();
    },
  };
};
