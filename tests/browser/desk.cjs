// What tests of the operators' console do again and again: sign in, go to a room, choose a comment, answer a dialog, look at it on
// every kind of screen.
const fs = require('node:fs');
const { createRequire } = require('node:module');
const path = require('node:path');

/** The rules of WCAG 2.1, levels A and AA, as far as a program can judge them: npm axe-core. */
const axe = fs.readFileSync(createRequire(path.join(process.env.NODE_PATH, 'x.js')).resolve('axe-core/axe.min.js'), 'utf8');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'];

const WITHIN_MS = 1000;
const PHONE = { viewport: { width: 390, height: 780 }, deviceScaleFactor: 2 };
/** The screens that a page has to fit, by name. */
const SCREENS = [['desktop-light', {}], ['desktop-dark', { colorScheme: 'dark' }], ['phone-light', PHONE], ['phone-dark', { ...PHONE, colorScheme: 'dark' }]];

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, live }) => {
  const signIn = async (page, url, secret) => {
    await page.goto(`${url}/console`);
    await page.fill('#enter-token', secret);
    await page.press('#enter-token', 'Enter');
    await page.waitForSelector('#nav:not([hidden])');
  };
  const openRoom = async (page, url, room) => {
    await page.goto(`${url}/console#/room/${encodeURIComponent(room)}`);
    await live(page);
    await page.waitForSelector('.facts dl');
  };
  /** The console, signed in, and in `room` where one is named. */
  const enter = async (browser, url, secret, room, options) => {
    const page = await open(browser, 'about:blank', options);
    await signIn(page, url, secret);
    if (room) await openRoom(page, url, room);
    return page;
  };
  /** What the console's status line says, by now or soon. */
  const said = (page, text) => page.waitForFunction((wanted) => document.getElementById('said').textContent.includes(wanted), text);
  const asked = (page) => page.waitForSelector('dialog[open]');
  const answer = async (page, why) => {
    await asked(page);
    await page.fill('#ask-justification', why);
    await page.keyboard.press('Enter');
  };
  const choose = async (page, text) => {
    // Up from the newest until it is the one.
    await page.keyboard.press('g');
    for (let n = 0; n < 60; n += 1) {
      await page.keyboard.press('k');
      if (await page.$eval('#feed li.current', (li) => li.textContent).then((t) => t.includes(text), () => false)) return;
    }
    throw new Error(`no way by k to ${text}`);
  };
  /** What was done at `start` has come about by now, and in time. */
  const within = (start, what) => {
    const took = Date.now() - start;
    console.log(`     ${what} after ${took} ms`);
    check(took < WITHIN_MS, `${what} after ${took} ms`);
  };
  /** Nothing on these pages went wrong; they are closed. */
  const close = async (...pages) => {
    check(pages.every((page) => page.faults.length === 0), `page faults: ${pages.map((page) => page.faults).join(' ')}`);
    await Promise.all(pages.map((page) => page.context().close()));
  };
  /** Whether each control that is seen has a name that a screen reader can say. */
  const allNamed = (page) => page.$$eval('a, button, input, select, textarea', (all) => all.filter((e) => e.offsetParent !== null)
    .every((e) => (e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent).trim() !== ''));
  const gone = (page, text) => page.waitForFunction((wanted) => ![...document.querySelectorAll('#feed li')].some((li) => li.textContent.includes(wanted)), text);
  const noSideways = (page) => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);
  /** How many rules hold on a page, and what breaks which. `only`: tags of rules; all of axe-core's when left out. */
  const judge = async (page, only) => {
    if (!await page.evaluate(() => 'axe' in window)) await page.evaluate(axe);
    return page.evaluate(async (runOnly) => {
      const { violations, passes } = await window.axe.run(document, runOnly ? { runOnly } : {});
      return { held: passes.length, broken: violations.flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id} at ${n.target.join(' ')}: ${n.any.concat(n.all, n.none)[0]?.message}`)) };
    }, only);
  };
  /** Errors: a rule is broken; each is named with what breaks it. */
  const accessible = async (page, what) => {
    const { broken, held } = await judge(page, RULES);
    check(broken.length === 0, `${what}: ${broken.join('; ')}`);
    check(held > 0, `${what}: no rule was asked about`);
  };
  const call = async (url, method, where, secret, body) => {
    const response = await fetch(url + where, {
      method, headers: { authorization: `Bearer ${secret}`, ...(body ? { 'content-type': 'application/json' } : {}) }, body: body ? JSON.stringify(body) : undefined,
    });
    return { status: response.status, body: await response.json().catch(() => null) };
  };
  return { signIn, enter, openRoom, said, asked, answer, choose, within, close, allNamed, gone, noSideways, judge, accessible, call, PHONE, SCREENS };
};
