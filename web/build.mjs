// Builds the console into the Python package: one script and one style, named by their content, and the page.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const out = new URL("../src/tieline/console/static/", import.meta.url);
const made = await build({
  absWorkingDir: new URL(".", import.meta.url).pathname,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  bundle: true,
  minify: true,
  write: false,
  outdir: "out",
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
});

await rm(out, { recursive: true, force: true });
await mkdir(new URL("assets/", out), { recursive: true });
const names = {};
let total = 0;
for (const file of made.outputFiles) {
  const [base, kind] = file.path.split("/").at(-1).split(".");
  const digest = createHash("sha256").update(file.contents).digest("hex").slice(0, 12);
  names[`${base}.${kind}`] = `assets/${base}-${digest}.${kind}`;
  await writeFile(new URL(names[`${base}.${kind}`], out), file.contents);
  total += gzipSync(file.contents, { level: 9 }).length;
}
const page = (await readFile(new URL("src/index.html", import.meta.url), "utf8"))
  .replace("app.js", names["app.js"])
  .replace("style.css", names["style.css"]);
await writeFile(new URL("index.html", out), page);
console.log(`console: ${(total / 1000).toFixed(1)} KB gzipped`);
