// The reference of a package: what its module exports, as TypeScript declares it, with the comments beside it.
import fs from 'node:fs';
import path from 'node:path';

/** The page. `ts`: the compiler; `entry`: the module whose exports are told. */
export function reference(ts, entry, { name, short }) {
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
    allowImportingTsExtensions: true, noEmit: true, strict: true, types: [], lib: ['lib.es2023.d.ts', 'lib.dom.d.ts'] };
  const program = ts.createProgram([entry], options);
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(entry);
  const comment = (node) => ts.displayPartsToString(node.getDocumentationComment(checker)).replace(/\s*\n\s*/g, ' ');
  const said = (symbol) => comment(symbol);
  const lines = [`# \`${name}\``, '', `What the package exports. Written by \`cargo xtask sdk\` from the comments of \`web/${short}\`; how it is used: [embed.md](embed.md); events and their members: [protocol.md](protocol.md).`, ''];
  const groups = { Classes: [], Functions: [], Values: [], Types: [] };
  for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(source))) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    const declaration = symbol.declarations[0];
    // What crates/wire writes is told by the protocol.
    const generated = path.basename(declaration.getSourceFile().fileName) === 'wire.ts';
    if (generated) continue;
    const text = [];
    const heading = exported.name;
    if (ts.isClassDeclaration(declaration) || ts.isInterfaceDeclaration(declaration)) {
      text.push(`### \`${heading}\``, '', said(symbol), '');
      const rows = [];
      const above = (declaration.heritageClauses ?? []).flatMap((clause) => clause.types)
        .flatMap((type) => checker.getSymbolAtLocation(type.expression)?.declarations ?? []).filter((d) => d.getSourceFile().fileName.startsWith(path.dirname(entry)));
      for (const member of [...declaration.members, ...above.flatMap((d) => [...d.members])]) {
        const flags = ts.getCombinedModifierFlags(member);
        if (flags & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected) || (member.name && ts.isPrivateIdentifier(member.name))) continue;
        const its = ts.isConstructorDeclaration(member) ? null : checker.getSymbolAtLocation(member.name ?? member);
        const doc = its ? said(its) : ts.getJSDocCommentsAndTags(member).map((d) => ts.getTextOfJSDocComment(d.comment) ?? '').join(' ').replace(/\s*\n\s*/g, ' ');
        if (/@internal/.test(member.getFullText())) continue;
        rows.push([signature(ts, member), doc]);
      }
      if (rows.length) {
        text.push('| member | |', '|---|---|', ...rows.map(([code, doc]) => `| \`${code.replaceAll('|', '\\|')}\` | ${doc.replaceAll('|', '\\|')} |`), '');
      }
      groups[ts.isClassDeclaration(declaration) ? 'Classes' : 'Types'].push(...text);
    } else if (ts.isFunctionDeclaration(declaration)) {
      groups.Functions.push(`### \`${signature(ts, declaration)}\``, '', said(symbol), '');
    } else if (ts.isVariableDeclaration(declaration)) {
      groups.Values.push(`### \`${heading}\``, '', said(symbol), '');
    } else {
      groups.Types.push(`### \`${heading}\``, '', said(symbol), '', '```ts', declaration.getText().replace(/^export /, ''), '```', '');
    }
  }
  for (const [title, text] of Object.entries(groups)) if (text.length) lines.push(`## ${title}`, '', ...text);
  return `${lines.join('\n').replace(/\n{3,}/g, '\n\n').trimEnd()}\n`;
}

/** A declaration on one line, without its body and its comments. */
function signature(ts, node) {
  const body = node.body ?? node.initializer;
  const text = body ? node.getText().slice(0, body.getStart() - node.getStart()).replace(/=\s*$/, '') : node.getText();
  return text.replace(/^export /, '').replace(/\s+/g, ' ').replace(/[;{]\s*$/, '').trim();
}
