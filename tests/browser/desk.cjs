// What tests of the operators' console do again and again: sign in, go to a room, choose a comment, answer a dialog.

/** `live`: waits for a page's stream. */
module.exports = ({ live }) => {
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
  const gone = (page, text) => page.waitForFunction((wanted) => ![...document.querySelectorAll('#feed li')].some((li) => li.textContent.includes(wanted)), text);
  const noSideways = (page) => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);
  const call = async (url, method, where, secret, body) => {
    const response = await fetch(url + where, {
      method, headers: { authorization: `Bearer ${secret}`, ...(body ? { 'content-type': 'application/json' } : {}) }, body: body ? JSON.stringify(body) : undefined,
    });
    return { status: response.status, body: await response.json().catch(() => null) };
  };
  return { signIn, openRoom, said, asked, answer, choose, gone, noSideways, call };
};
