// The score desk in a real browser: from whom a match is shown, alarms, what an operator types and corrects in two steps, and what a
// viewer's page shows of it a moment later. And whether every page is one that a screen reader and a keyboard can use.
const path = require('node:path');

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live, screens, token, alone }) => {
  const { signIn, enter, openRoom, said, asked, answer, within, close, allNamed, noSideways, accessible, call, SCREENS } = require('./desk.cjs')({ open, check, live });
  const MATCH = 'cup:1';

  /** A server of its own that misses a provider after a few seconds; `run` is given what a test does there. */
  const desk = (run, ...settings) => alone(() => ['scores.differ_seconds=1', ...settings], async ({ url, data, put }) => {
    const backend = token(data, 'feeds', 'backend');
    const score = async (provider, event, home, away, more = {}) => {
      const { status, body } = await call(url, 'POST', '/v1/score-event', backend, { match_id: MATCH, provider, event_id: event, kind: 'goal', score: { home, away }, ...more });
      check(status === 200 || status === 202, `a score: ${status} ${JSON.stringify(body)}`);
    };
    await run({ url, data, put, score });
  });

  const shownOn = (viewer, figures) => viewer.waitForFunction((wanted) => document.querySelector('#scores .figures')?.textContent === wanted, figures);
  const provider = (page, id) => page.waitForSelector(`#scores [data-provider="${id}"]`);
  const dialog = async (page, ...wanted) => {
    await asked(page);
    const told = await page.textContent('dialog');
    for (const text of wanted) check(told.includes(text), `${text} is not in: ${told}`);
  };
  const type = async (page, home, away) => {
    await page.fill('#scores input[aria-label="Score, home"]', String(home));
    await page.fill('#scores input[aria-label="Score, away"]', String(away));
    await page.click('#scores .typed button[type="submit"]');
  };

  return {
    async 'a match is switched over by key, and the confirmation says what viewers will be told'({ browser }) {
      await desk(async ({ url, data, put, score }) => {
        const room = 'derby:switch';
        await put(room, { title: 'Switch', matches: [MATCH] });
        await score('one', 'a1', 1, 0);
        await score('one', 'a2', 2, 0);
        const viewer = await open(browser, `${url}/rooms/${room}`);
        await live(viewer);
        await shownOn(viewer, '2 – 0');
        const page = await enter(browser, url, token(data, 'olive', 'region-ops'), room);
        await provider(page, 'one');
        await page.click('#scores [data-provider="one"] button');
        await dialog(page, `Show ${MATCH} from one?`, 'From whoever says something to one', 'The score is 2–0 now, and 2–0 then.');
        await answer(page, 'kick-off');
        await said(page, 'is shown from one');
        await score('two', 'b1', 1, 0);
        await score('two', 'b2', 1, 1);
        await provider(page, 'two');
        // Two providers that go on saying different scores are an alarm.
        await page.waitForFunction(() => document.querySelector('#scores .alarm') === null);
        await page.click('#scores [data-provider="two"] button');
        await dialog(page, 'From one to two; one stands by.', 'are told 2 events', 'Told: b2, goal 1–1', 'Told: a2, goal 2–0 (withdrawn)', 'The score is 2–0 now, and 1–1 then.', 'The score that viewers see goes down.');
        await page.screenshot({ path: path.join(screens, 'scores-switch.png') });
        await page.fill('#ask-justification', 'one has failed');
        const start = Date.now();
        await page.press('#ask-justification', 'Enter');
        await shownOn(viewer, '1 – 1');
        within(start, "a switch-over was on the viewer's page");
        await page.waitForFunction(() => document.querySelector('#scores .alarm')?.textContent.includes('two says 1–1, one says 2–0'));

        // Back by its undo line, which proposes and confirms anew; then by key, and too late.
        await page.keyboard.press('z');
        await shownOn(viewer, '2 – 0');
        await page.waitForFunction(() => document.querySelector('#scores [data-provider="one"] .badge')?.textContent === 'primary');
        await page.keyboard.press('o');
        await dialog(page, `Show ${MATCH} from two?`);
        await score('two', 'b3', 1, 2);
        await answer(page, 'again');
        await page.waitForFunction(() => document.getElementById('said').textContent.includes('Not done'));
        check((await page.textContent('#said')).includes('look again'), 'a change that was proposed against another match is done');
        await shownOn(viewer, '2 – 0');
        await close(page, viewer);
      });
    },

    async 'a score is typed, corrected and taken back in two steps, and the ledger has all of it'({ browser }) {
      await desk(async ({ url, data, put, score }) => {
        const room = 'derby:typed';
        await put(room, { title: 'Typed', matches: [MATCH] });
        await score('<b>one</b>', 'a1', 1, 0, { minute: '12' });
        const viewer = await open(browser, `${url}/rooms/${room}`);
        await live(viewer);
        await shownOn(viewer, '1 – 0');
        const page = await enter(browser, url, token(data, 'olive', 'region-ops'), room);
        await provider(page, '<b>one</b>');
        await page.keyboard.press('i');
        check(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')) === 'Score, home', 'i is for typing a score');
        await type(page, 2, 0);
        await dialog(page, `Tell the viewers of ${MATCH} a score?`, 'Told: operator:1, goal 2–0', 'The score is 1–0 now, and 2–0 then.');
        await page.keyboard.press('Escape');
        await page.waitForFunction(() => document.querySelector('dialog') === null);
        check(await viewer.textContent('#scores .figures') === '1 – 0', 'what was proposed alone is done');
        await page.click('#scores .typed button[type="submit"]');
        await asked(page);
        await page.fill('#ask-justification', 'no provider saw it');
        const start = Date.now();
        await page.press('#ask-justification', 'Enter');
        await shownOn(viewer, '2 – 0');
        within(start, "a typed score was on the viewer's page");
        await said(page, 'goal 2–0 is told');

        await page.click('#scores summary');
        await page.click('#scores [data-key="correct operator:1"]');
        check((await page.textContent('#scores .typed')).includes('A correction of operator:1'), 'what is corrected is said');
        await type(page, 3, 0);
        await dialog(page, `Correct operator:1 of ${MATCH}?`, 'Told: operator:1, goal 3–0 (corrected) (revision 2)');
        await answer(page, 'it was two');
        await shownOn(viewer, '3 – 0');
        await page.keyboard.press('z');
        await shownOn(viewer, '2 – 0');
        await page.click('#scores [data-key="withdraw operator:1"]');
        await dialog(page, 'Told: operator:1, goal 2–0 (withdrawn)', 'The score is 2–0 now, and 1–0 then.');
        await answer(page, 'offside');
        await shownOn(viewer, '1 – 0');
        await page.waitForFunction(() => document.querySelectorAll('#scores .said-of li').length === 5);
        const book = await page.$$eval('#scores .said-of li', (all) => all.map((li) => li.textContent));
        check(book[0].includes('operator operator:1 4: goal 2–0 (withdrawn)') && book[4].includes('<b>one</b> a1 1: 12′ goal 1–0'), `the ledger: ${book.join(' | ')}`);
        check(await page.$('#scores b') === null, 'a provider’s name became markup');
        await page.screenshot({ path: path.join(screens, 'scores-ledger.png') });

        // The desk is an operator's: a moderator of the room is not shown it, and is refused by the server.
        const mia = token(data, 'mod-mia', 'room-mod', ['derby*']);
        const other = await enter(browser, url, mia, room);
        check(await other.$eval('#scores', (e) => e.hidden), 'a moderator is shown the desk');
        for (const [method, where, body] of [
          ['GET', `/admin/matches/${MATCH}/providers`], ['PUT', `/admin/matches/${MATCH}/providers`, { primary: 'two' }],
          ['GET', `/admin/matches/${MATCH}/scores`], ['POST', `/admin/matches/${MATCH}/scores`, { kind: 'goal', score: { home: 9, away: 9 } }],
        ]) {
          const { status } = await call(url, method, where, mia, body);
          check(status === 403, `room-mod: ${method} ${where}: ${status}`);
        }
        await close(page, viewer, other);
      });
    },

    async 'a silent provider is an alarm at the desk, with when it was heard'({ browser }) {
      await desk(async ({ url, data, put, score }) => {
        const room = 'derby:silent';
        await put(room, { title: 'Silent', matches: [MATCH] });
        await score('one', 'a1', 1, 0);
        const page = await enter(browser, url, token(data, 'olive', 'region-ops'), room);
        await provider(page, 'one');
        check(/heard \d+ s ago/.test(await page.textContent('#scores [data-provider="one"]')), 'when it was heard is said');
        await page.click('#scores [data-provider="one"] button');
        await answer(page, 'kick-off');
        await page.waitForFunction(() => /nothing comes from one since .*Viewers are told that the feed is stale/.test(document.querySelector('#scores .alarm')?.textContent ?? ''));
        await page.screenshot({ path: path.join(screens, 'scores-silent.png') });
        await score('one', 'a2', 2, 0);
        await page.waitForFunction(() => document.querySelector('#scores .alarm') === null);
        await close(page);
      }, 'scores.stale_seconds=5');
    },

    async 'the score desk and every other page can be used by everybody, on a phone and a desktop, in light and dark'({ browser }) {
      await desk(async ({ url, data, put, score }) => {
        const room = 'derby:looks';
        await put(room, { title: 'Derby: North Stand against South Stand', matches: [MATCH, 'cup:2'] });
        await score('sportradar', 'a1', 1, 0, { minute: '12' });
        await score('datafactory-with-a-long-name', 'b1', 1, 1, { minute: '13', state: 'under_review' });
        const secret = token(data, 'olive', 'admin');
        // A primary and a stand-by that go on saying different scores.
        const providers = (body) => call(url, 'PUT', `/admin/matches/${MATCH}/providers`, secret, { primary: 'sportradar', stand_by: 'datafactory-with-a-long-name', ...body });
        const { confirm } = (await providers({})).body;
        check((await providers({ confirm, justification: 'browser test' })).status === 200, 'a primary is set');
        for (const [name, options] of SCREENS) {
          const page = await open(browser, `${url}/`, options);
          const looks = async (what) => {
            check(await noSideways(page), `${what} scrolls sideways on ${name}`);
            await accessible(page, `${what} on ${name}`);
          };
          await looks('the lobby');
          await page.goto(`${url}/rooms/${room}`);
          await live(page);
          await shownOn(page, '1 – 0');
          await looks('a room');
          await page.goto(`${url}/console`);
          await looks('signing in');
          await signIn(page, url, secret);
          await page.waitForSelector('tr[data-room] .chart');
          await looks('rooms');
          await openRoom(page, url, room);
          await provider(page, 'sportradar');
          await page.waitForFunction(() => document.querySelector('#scores .alarm')?.textContent.includes('says'));
          await page.click('#scores summary');
          await page.waitForSelector('#scores [data-shown]');
          await page.$eval('#scores', (e) => e.scrollIntoView());
          await looks('the desk');
          check(await allNamed(page), 'a control has no name');
          await page.screenshot({ path: path.join(screens, `scores-${name}.png`) });
          await type(page, 2, 1);
          await asked(page);
          await looks('a proposal');
          await page.screenshot({ path: path.join(screens, `scores-ask-${name}.png`) });
          await page.keyboard.press('Escape');
          await page.waitForFunction(() => document.querySelector('dialog') === null);
          for (const view of await page.$$eval('#nav a', (all) => all.map((a) => a.dataset.view))) {
            await page.goto(`${url}/console#/${view}`);
            await page.waitForSelector(`.view-${view} h1`);
            await looks(view);
          }
          await close(page);
        }
      }, 'scores.stale_seconds=600');
    },
  };
};
