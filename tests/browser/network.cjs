// A network between a page and the server that can be cut, slow, half-open or closed to one transport: TCP passed on, by what is asked
// for. Pages go to `url`; the server hears them under that name.
const net = require('node:net');

/** The transport a connection is used for, by the first line of its newest request. */
const WAYS = [[/\/stream[? ]/, 'websocket'], [/\/sse[? ]/, 'sse'], [/\/poll[? ]/, 'poll']];
const wayOf = (text) => WAYS.find(([pattern]) => pattern.test(text))?.[1];

/** In front of `target` (a URL). `modes`: transport, or `all`, to 'pass', 'cut' (reset), 'block' (never answered), 'hold' (half-open), or {delay}. */
module.exports = async function network(target) {
  const { hostname, port } = new URL(target);
  const links = new Set();
  const modes = {};
  const server = net.createServer((near) => {
    const far = net.connect(Number(port), hostname);
    const link = { near, far, way: undefined };
    links.add(link);
    const mode = () => modes[link.way] ?? modes.all ?? 'pass';
    const pass = (to, from) => (chunk) => {
      const now = mode();
      if (now === 'cut') { near.destroy(); far.destroy(); return; }
      if (now === 'block' || now === 'hold') return;
      if (now.delay) setTimeout(() => { if (!to.destroyed && mode() !== 'hold') to.write(chunk); }, now.delay);
      else if (!to.destroyed) to.write(chunk);
      void from;
    };
    near.on('data', (chunk) => {
      const line = chunk.toString('latin1').split('\r\n', 1)[0];
      if (/^(GET|POST|HEAD|OPTIONS|PUT|DELETE) /.test(line)) link.way = wayOf(line) ?? 'api';
      pass(far, near)(chunk);
    });
    far.on('data', pass(near, far));
    const gone = (other) => () => { links.delete(link); if (mode() !== 'hold' && mode() !== 'block') other.destroy(); };
    near.on('close', gone(far));
    far.on('close', gone(near));
    near.on('error', () => {});
    far.on('error', () => {});
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    set(way, mode) { if (mode === 'pass') delete modes[way]; else modes[way] = mode; },
    /** Resets what is open now. */
    reset() { for (const { near, far } of links) { near.destroy(); far.destroy(); } },
    open: (way) => [...links].filter((link) => link.way === way && !link.near.destroyed).length,
    close() { server.close(); for (const { near, far } of links) { near.destroy(); far.destroy(); } },
  };
};
