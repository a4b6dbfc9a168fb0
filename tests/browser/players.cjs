// Archives of a room's comments in the players that people have: DPlayer reads its JSON, artplayer-plugin-danmuku Bilibili's XML. Each
// is given the file as the terminal writes it, and plays it over a recording of silence.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');

/** Half a minute of silence: eight-bit samples, 8 000 a second. */
function silence() {
  const samples = Buffer.alloc(30 * 8000, 128);
  const head = Buffer.alloc(44);
  head.write('RIFF', 0); head.writeUInt32LE(36 + samples.length, 4); head.write('WAVEfmt ', 8); head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20); head.writeUInt16LE(1, 22); head.writeUInt32LE(8000, 24); head.writeUInt32LE(8000, 28);
  head.writeUInt16LE(1, 32); head.writeUInt16LE(8, 34); head.write('data', 36); head.writeUInt32LE(samples.length, 40);
  return Buffer.concat([head, samples]);
}

const PAGES = {
  dplayer: `<!doctype html><meta charset="utf-8"><div id="stage" style="width:800px;height:450px"></div><script src="/DPlayer.min.js"></script>
    <script>window.player = new DPlayer({ container: document.getElementById('stage'), volume: 0, mutex: false, preload: 'auto',
      video: { url: '/silence.wav' }, danmaku: { id: 'derby', api: '/' } });</script>`,
  artplayer: `<!doctype html><meta charset="utf-8"><div id="stage" style="width:800px;height:450px"></div><script src="/artplayer.js"></script>
    <script src="/artplayer-plugin-danmuku.js"></script>
    <script>window.player = new Artplayer({ container: '#stage', url: '/silence.wav', muted: true,
      plugins: [artplayerPluginDanmuku({ danmuku: '/derby.xml', emitter: false, antiOverlap: true })] });</script>`,
};

/** Serves players, silence and archives to the browser, as any file server would. */
function files(all) {
  const server = http.createServer((request, response) => {
    const found = all[request.url.split('?')[0]];
    if (!found) { response.writeHead(request.url === '/favicon.ico' ? 204 : 404).end(); return; }
    const [type, body] = found;
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    const bytes = Buffer.from(body);
    const [from, to] = range ? [Number(range[1]), range[2] ? Number(range[2]) : bytes.length - 1] : [0, bytes.length - 1];
    response.writeHead(range ? 206 : 200, { 'content-type': type, 'accept-ranges': 'bytes', 'content-length': to - from + 1,
      ...(range && { 'content-range': `bytes ${from}-${to}/${bytes.length}` }) });
    response.end(bytes.subarray(from, to + 1));
  });
  return new Promise((resolve) => { server.listen(0, '127.0.0.1', () => resolve(server)); });
}

/** `tools`: what the other browser tests use too. */
module.exports = ({ open, check, screens, token, binary, modules }) => ({
  async 'an archive plays in DPlayer and in ArtPlayer, and its texts are texts there'({ browser, url, data, put, postAs }) {
    await put('players', { title: 'Players' });
    const evil = 'what a goal <img src=x onerror="window.owned=1"> & "more"';
    // Two seconds in: the players have loaded the file by then.
    const start = new Date(Date.now() - 2000).toISOString();
    await postAs('players', { id: 'mia', name: 'Mia' }, evil);
    await postAs('players', { id: 'lou', name: 'Lou' }, '日本 👩‍👩‍👧 second');
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'grandstand-archive-'));
    const archive = (format) => {
      const file = path.join(folder, format);
      const made = spawnSync(binary, ['admin', 'archive', 'players', '--format', format, '--start', start, '-o', file],
        { encoding: 'utf8', env: { ...process.env, GRANDSTAND_URL: url, GRANDSTAND_TOKEN: token(data, 'archivist', 'admin') } });
      check(made.status === 0, `archive: ${made.stderr}`);
      return fs.readFileSync(file);
    };
    const script = (name) => ['text/javascript', fs.readFileSync(path.join(modules, name))];
    const server = await files({
      '/dplayer': ['text/html', PAGES.dplayer], '/artplayer': ['text/html', PAGES.artplayer],
      '/silence.wav': ['audio/wav', silence()], '/v3/': ['application/json', archive('dplayer')], '/derby.xml': ['application/xml', archive('bilibili')],
      '/DPlayer.min.js': script('dplayer/dist/DPlayer.min.js'), '/artplayer.js': script('artplayer/dist/artplayer.js'),
      '/artplayer-plugin-danmuku.js': script('artplayer-plugin-danmuku/dist/artplayer-plugin-danmuku.js'),
    });
    const home = `http://127.0.0.1:${server.address().port}`;
    for (const [name, lines] of [['dplayer', '.dplayer-danmaku-item'], ['artplayer', '.art-danmuku > div']]) {
      const page = await open(browser, `${home}/${name}`);
      await page.evaluate(() => { const video = document.querySelector('video'); video.muted = true; return video.play(); });
      for (const wanted of [evil, '日本 👩‍👩‍👧 second']) {
        await page.waitForFunction(([of, text]) => [...document.querySelectorAll(of)].some((line) => line.textContent === text), [lines, wanted]);
      }
      check(await page.evaluate(() => window.owned === undefined && document.querySelector('#stage img[src=x]') === null), `${name}: a text became markup`);
      await page.screenshot({ path: path.join(screens, `archive-${name}.png`) });
      check(page.faults.length === 0, `${name}: ${page.faults}`);
      await page.context().close();
    }
    await new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); });
    fs.rmSync(folder, { recursive: true, force: true });
  },
});
