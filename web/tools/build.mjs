// Builds the packages of web/: types checked and written by tsc, modules for npm, and the bundles that the server embeds.
//
//   node build.mjs ROOT TOOLS OUT [--check]
//
// TOOLS is the folder npm put typescript and esbuild into. OUT gets a folder a package, as `npm pack` takes it. Bundles go to
// web/pages/assets, the reference to docs; with --check nothing of the repository is written, and what differs fails.
//
// A package says what is made of it in `grandstand` of its package.json:
//   bundles[{from, to, gzip_max, mangled[]?}]: one minified module each, of at most so many bytes when gzipped; `mangled` names
//   members that nobody outside sees, and that may be called anything.
//   reference{from, to}: what the module exports, with its comments, as a page.
// A bundle imports another package's by its name; it stays an import, of that package's first bundle beside it.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { reference } from './reference.mjs';

const [root, tools, out, mode] = process.argv.slice(2);
const from = createRequire(path.join(tools, 'node_modules/x.js'));
const esbuild = from('esbuild');
const typescript = from('typescript');
const web = path.join(root, 'web');
const assets = path.join(web, 'pages/assets');
let failed = 0;

function fault(what) {
  failed += 1;
  console.error(`FAIL ${what}`);
}

/** Writes a file of the repository, or says that it is not what it should be. */
function keep(file, text) {
  const kept = fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : null;
  if (kept === text) return;
  const name = path.relative(root, file);
  if (mode === '--check') fault(`${name} is not what its sources make: cargo xtask sdk`);
  else { fs.writeFileSync(file, text); console.log(`wrote ${name}`); }
}

const packages = fs.readdirSync(web)
  .map((name) => ({ name, folder: path.join(web, name), manifest: path.join(web, name, 'package.json') }))
  .filter(({ manifest }) => fs.existsSync(manifest))
  .map((found) => ({ ...found, ...JSON.parse(fs.readFileSync(found.manifest, 'utf8')), short: found.name }));

/** Package name to the bundle of it that others import. */
const beside = new Map(packages.map((p) => [p.name, `./${p.grandstand.bundles[0].to}`]));

for (const p of packages) {
  const dist = path.join(out, p.short, 'dist');
  fs.rmSync(path.join(out, p.short), { recursive: true, force: true });
  fs.mkdirSync(dist, { recursive: true });
  fs.copyFileSync(p.manifest, path.join(out, p.short, 'package.json'));
  const tsc = spawnSync(process.execPath, [path.join(tools, 'node_modules/typescript/bin/tsc'), '-p', p.folder, '--outDir', dist], { stdio: 'inherit' });
  if (tsc.status !== 0) { fault(`${p.name} does not compile`); continue; }
  for (const { from: entry, to, gzip_max: most, mangled } of p.grandstand.bundles) {
    const built = await esbuild.build({
      entryPoints: [path.join(p.folder, entry)], bundle: true, minify: true, format: 'esm', target: 'es2022', charset: 'utf8',
      legalComments: 'none', write: false, logLevel: 'warning', ...(mangled && { mangleProps: new RegExp(`^(${mangled.join('|')})$`) }),
      banner: { js: `// ${p.name} ${p.version}: made of web/${p.short}/${entry} by cargo xtask sdk.` },
      plugins: [{
        name: 'beside',
        setup: ({ onResolve }) => onResolve({ filter: /^@grandstand\// }, ({ path: name }) => ({ path: beside.get(name) ?? name, external: true })),
      }],
    });
    const text = built.outputFiles[0].text;
    const size = gzipSync(text, { level: 9 }).length;
    console.log(`${to}: ${text.length} bytes, ${size} gzipped (at most ${most})`);
    if (size > most) fault(`${to} has ${size} bytes gzipped, ${most} are allowed`);
    keep(path.join(assets, to), text);
  }
  if (p.grandstand.reference) {
    const { from: entry, to } = p.grandstand.reference;
    keep(path.join(root, to), reference(typescript, path.join(p.folder, entry), p));
  }
}
process.exit(failed ? 1 : 0);
