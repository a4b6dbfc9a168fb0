// Answers and fates on the viewer page: what is answered stands over the answer for everybody, and goes when it is retracted; the
// author of a comment in a sampled room is told what became of it.
const path = require('node:path');

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live, say, shows, screens, token }) => {
  const { call, close, gone, noSideways, PHONE } = require('./desk.cjs')({ open, check, live });
  const FINGERS = { ...PHONE, hasTouch: true, isMobile: true };
  const quotes = (page, wanted) => page.waitForFunction(
    (text) => [...document.querySelectorAll('#feed blockquote')].some((q) => q.textContent === text), wanted);
  const line = (page, text) => page.locator('#feed li', { hasText: text }).first();

  return {
    async 'an answer shows on every page what it answers, and the quote goes with a retract'({ browser, url, data, put, postAs }) {
      await put('answers', { title: 'Answers' });
      const moderator = token(data, 'mod-ada', 'admin');
      const retract = async (event) => {
        const answer = await call(url, 'POST', '/admin/rooms/answers/retract', moderator, { event_id: event, justification: 'browser test' });
        check(answer.status === 200, `retract: ${JSON.stringify(answer)}`);
      };
      const [a, b] = await Promise.all([open(browser, `${url}/rooms/answers`), open(browser, `${url}/rooms/answers`, { ...FINGERS, colorScheme: 'dark' })]);
      await Promise.all([live(a), live(b)]);
      const long = `what a save <b>that</b> was ${'and another one '.repeat(20)}`;
      const first = await postAs('answers', { id: 'mia', name: '<i>Mia</i>' }, long);
      const second = await postAs('answers', { id: 'lou', name: 'Lou' }, 'offside, surely');
      await Promise.all([shows(a, 'offside, surely'), shows(b, 'offside, surely')]);

      // By keys alone: back from the comment box to the newest comment's control.
      await a.fill('#composer-name', 'Nia');
      await a.focus('#composer-name');
      await a.keyboard.press('Shift+Tab');
      check(await a.evaluate(() => document.activeElement.getAttribute('aria-label')) === 'Reply to Lou', 'the control is next to the composer');
      await a.keyboard.press('Enter');
      check(await a.textContent('#replying-to') === 'Replying to Louoffside, surely', 'the composer says whom one answers');
      check(await a.evaluate(() => document.activeElement.id) === 'composer-text', 'and is written in at once');
      await a.keyboard.press('Escape');
      check(!await a.isVisible('#replying'), 'Escape takes it back');
      await line(a, 'what a save').getByRole('button').click();
      await a.screenshot({ path: path.join(screens, 'answer-composer-desktop.png') });
      await a.click('#reply-cancel');
      check(!await a.isVisible('#replying'), 'and so does its button');

      await line(a, 'what a save').getByRole('button').click();
      await say(a, 'second best of the season');
      await shows(b, 'second best of the season');
      check(!await a.isVisible('#replying'), 'one answer is one answer');
      const wanted = `<i>Mia</i>${long.slice(0, 90).trimEnd()}…`;
      await Promise.all([quotes(a, wanted), quotes(b, wanted)]);
      check(await b.$('#feed blockquote b, #feed blockquote i') === null, 'a quote became markup');
      await line(b, 'offside, surely').getByRole('button').tap();
      await b.fill('#composer-name', 'Bo');
      check(await noSideways(b), 'the composer scrolls sideways');
      await b.screenshot({ path: path.join(screens, 'answer-composer-phone-dark.png') });
      await say(b, 'by a yard');
      await Promise.all([shows(a, 'by a yard'), quotes(a, 'Louoffside, surely')]);
      await b.waitForFunction(() => document.querySelector('#feed .mine .fate')?.textContent === 'sent');
      await Promise.all([a.mouse.move(300, 300), b.screenshot({ path: path.join(screens, 'answer-phone-dark.png') })]);
      await a.screenshot({ path: path.join(screens, 'answer-desktop.png') });

      // Whoever comes later has the same picture from the snapshot.
      await b.reload();
      await live(b);
      await Promise.all([quotes(b, wanted), quotes(b, 'Louoffside, surely')]);

      // What is being answered is retracted meanwhile: nobody answers into nothing.
      await line(a, 'what a save').getByRole('button').click();
      await Promise.all([retract(first.event_id), quotes(a, 'Answer to a comment that was removed'), quotes(b, 'Answer to a comment that was removed')]);
      await Promise.all([gone(a, 'what a save'), gone(b, 'what a save')]);
      await a.waitForFunction(() => document.getElementById('replying').hidden && document.getElementById('composer-note').textContent === 'The comment you were answering was removed.');
      await retract(second.event_id);
      await Promise.all([gone(a, 'offside, surely'), gone(b, 'offside, surely')]);
      check(await noSideways(b), 'answers scroll sideways');
      // Of what left the snapshot the page knows nothing, and says so; a snapshot of the second before is followed by the retract.
      await b.reload();
      await live(b);
      await b.waitForFunction(() => [...document.querySelectorAll('#feed blockquote')]
        .some((q) => ['Answer to an earlier comment', 'Answer to a comment that was removed'].includes(q.textContent)));
      check(!(await b.textContent('#feed')).includes('what a save'), 'a retracted text came back');
      await a.screenshot({ path: path.join(screens, 'answer-retracted-desktop.png') });
      await close(a, b);
    },

    async 'what others said just before an own comment is shown, though its answer came first'({ browser, url, put, postAs }) {
      // The answer goes at once, what was said at the end of the window.
      await put('merged', { title: 'Merged', merge_ms: 1000 });
      const page = await open(browser, `${url}/rooms/merged`);
      await live(page);
      await page.fill('#composer-name', 'Ida');
      await say(page, 'hello');
      await page.waitForSelector('#feed .mine .reply');
      for (let n = 0; n < 3; n += 1) {
        await postAs('merged', { id: 'mia', name: 'Mia' }, `mia ${n}`);
        await say(page, `own ${n}`);
        // By the socket, which another's post may overtake.
        await page.waitForFunction((own) => [...document.querySelectorAll('#feed .mine')].some((li) => li.textContent.includes(own) && li.querySelector('.reply')), `own ${n}`);
      }
      await page.waitForFunction(() => document.querySelectorAll('#feed .reply').length === 7);
      const texts = await page.$$eval('#feed li', (all) => all.map((li) => li.textContent.match(/(mia|own) \d|hello/)[0]));
      check(texts.join() === 'hello,mia 0,own 0,mia 1,own 1,mia 2,own 2', `in the room's order: ${texts}`);
      await close(page);
    },

    async 'the badge of a sampled view comes and goes with the setting'({ browser, url, put, post }) {
      await put('badge', { title: 'Badge', sampling: 'always' });
      const page = await open(browser, `${url}/rooms/badge`, FINGERS);
      await live(page);
      await page.waitForSelector('#sampled:not([hidden])');
      check(/^You are shown at most 5 comments a second/.test(await page.getAttribute('#sampled', 'title')), 'what the badge says at length');
      await post('badge', 'one of many');
      await shows(page, 'one of many');
      check(await noSideways(page), 'the badge scrolls sideways');
      await page.screenshot({ path: path.join(screens, 'sampled-phone.png') });
      await put('badge', { sampling: 'none' });
      await page.waitForSelector('#sampled', { state: 'hidden' });
      await put('badge', { sampling: 'always' });
      await page.waitForSelector('#sampled:not([hidden])');
      await close(page);
    },

    async 'the author in a wide room is told what became of a comment, and loses it when it is retracted'({ browser, url, data, put }) {
      await put('fate', { title: 'Fates', sampling: 'always' });
      const page = await open(browser, `${url}/rooms/fate`);
      await live(page);
      await page.fill('#composer-name', 'Ida');
      await say(page, 'alone in its window');
      const fate = (text, wanted) => page.waitForFunction(([text, wanted]) => [...document.querySelectorAll('#feed .mine')]
        .some((li) => li.textContent.includes(text) && li.querySelector('.fate')?.textContent === wanted), [text, wanted]);
      await fate('alone in its window', 'shown');
      check(await page.locator('#feed li').count() === 1, 'it stands there once');
      // With its id it can be answered, and taken back.
      await line(page, 'alone in its window').getByRole('button').click();
      await page.click('#reply-cancel');
      // One of an author is shown in a window: said together, most are not.
      const texts = [...Array(6).keys()].map((n) => `all at once, ${'abcdef'[n]}`);
      await page.evaluate((texts) => {
        const box = document.getElementById('composer-text');
        for (const text of texts) { box.value = text; document.getElementById('composer').requestSubmit(); }
      }, texts);
      await page.waitForFunction((n) => [...document.querySelectorAll('#feed .mine .fate')].filter((f) => /^(shown|kept and not shown)$/.test(f.textContent)).length === n, 7);
      const kept = await page.locator('#feed .mine .fate', { hasText: 'kept and not shown' }).count();
      check(kept >= 2, `${kept} of six at once were kept and not shown`);
      await page.screenshot({ path: path.join(screens, 'fates-desktop.png') });

      const moderator = token(data, 'mod-ada', 'admin');
      const act = async (how) => {
        const answer = await call(url, 'POST', '/admin/rooms/fate/retract', moderator, { ...how, justification: 'browser test' });
        check(answer.status === 200, `retract: ${JSON.stringify(answer)}`);
      };
      const { body } = await call(url, 'GET', '/v1/rooms/fate/snapshot', moderator);
      const shown = body.recent_comments.find((c) => c.body === 'alone in its window');
      await act({ event_id: shown.event_id });
      await page.waitForFunction(() => ![...document.querySelectorAll('#feed li')].some((li) => li.textContent.includes('alone in its window')));
      await act({ user_id: shown.user.id });
      await page.waitForFunction(() => document.querySelectorAll('#feed li:not(.retracted):not(.event)').length === 0);
      await close(page);
    },
  };
};
