// Doors that need nothing of ours: a browser's own EventSource, through a restart of its server.
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

module.exports = ({ open, check, serve, stop, token, freePorts }) => ({
  async 'a plain EventSource hears each comment once, though the server goes and comes'({ browser }) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'grandstand-doors-'));
    const data = path.join(folder, 'data');
    const [port] = await freePorts(1);
    const start = () => serve(data, ['--listen', `127.0.0.1:${port}`]);
    let { server, url } = await start();
    try {
      const backend = token(data, 'shop', 'backend');
      const said = [];
      const say = async (body) => {
        const answer = await fetch(`${url}/v1/rooms/plain/comments`, {
          method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${backend}` },
          body: JSON.stringify({ client_msg_id: `k${said.length}`, body }),
        });
        check(answer.ok, `${answer.status} ${await answer.clone().text()}`);
        said.push(String((await answer.json()).event_id));
      };
      // A page with no script of its own.
      const page = await open(browser, `${url}/healthz/live`);
      await page.evaluate(() => {
        window.hellos = [];
        window.ids = [];
        const source = new EventSource('/v1/rooms/plain/sse');
        source.addEventListener('hello', (e) => window.hellos.push(JSON.parse(e.data).resumed));
        source.addEventListener('comment', (e) => window.ids.push(e.lastEventId));
      });
      await page.waitForFunction(() => window.hellos.length === 1);
      const heard = () => page.waitForFunction((last) => window.ids.at(-1) === last, said.at(-1));
      for (let n = 0; n < 5; n += 1) await say(`before ${n}`);
      await heard();
      for (const signal of ['SIGTERM', 'SIGKILL']) {
        if (signal === 'SIGTERM') await stop(server);
        else {
          const ended = new Promise((resolve) => { server.on('exit', resolve); });
          server.kill(signal);
          await ended;
        }
        ({ server, url } = await start());
        for (let n = 0; n < 5; n += 1) await say(`after ${signal} ${n}`);
        await heard();
      }
      const [hellos, ids] = await page.evaluate(() => [window.hellos, window.ids]);
      check(JSON.stringify(ids) === JSON.stringify(said), `heard ${ids}, said ${said}`);
      check(hellos.length >= 3 && hellos.slice(1).every((resumed) => resumed === true), `each stream is a resume: ${hellos}`);
      check(page.faults.length === 0, `the console: ${page.faults}`);
      await page.context().close();
    } finally {
      await stop(server);
      fs.rmSync(folder, { recursive: true, force: true });
    }
  },
});
