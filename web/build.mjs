// Builds the console into the Python package: one script and one style, named by their content, and the page. And the
// page of a report, one file with its script and style inside, into which the command line puts a report.
import { createHash } from "node:crypto";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const out = new URL("../src/tieline/console/static/", import.meta.url);
const options = {
  absWorkingDir: new URL(".", import.meta.url).pathname,
  bundle: true,
  minify: true,
  write: false,
  outdir: "out",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
};
/** Most bytes of the script and the style, compressed: a phone with a slow connection has them in a second or two. */
const PACKED_MAX = 150_000;

const made = await build({
  ...options,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  format: "esm",
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
if (total > PACKED_MAX) throw new Error(`the console has ${total} bytes gzipped, more than ${PACKED_MAX}`);
const page = (await readFile(new URL("src/index.html", import.meta.url), "utf8"))
  .replace("app.js", names["app.js"])
  .replace("style.css", names["style.css"]);
await writeFile(new URL("index.html", out), page);
// The manifest and the icons, by which a phone installs the page.
await cp(new URL("public/", import.meta.url), out, { recursive: true });

const [script] = (await build({ ...options, entryPoints: { report: "src/report.tsx" }, format: "iife" })).outputFiles;
const style = made.outputFiles.find((file) => file.path.endsWith("style.css"));
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = `default-src 'none'; script-src ${hash(script.text)}; style-src ${hash(style.text)}; img-src data:`;
// The command line puts the report in the place of the word.
const data = '<script type="application/json" id="report">REPORT</script>';
const parts = {
  POLICY: policy,
  "<!--STYLE-->": `<style>${style.text}</style>`,
  "<!--SCRIPT-->": `${data}<script>${script.text}</script>`,
};
const report = (await readFile(new URL("src/report.html", import.meta.url), "utf8")).replace(
  /POLICY|<!--STYLE-->|<!--SCRIPT-->/g,
  (name) => parts[name],
);
await writeFile(new URL("report.html", out), report);
console.log(
  `console: ${(total / 1000).toFixed(1)} KB gzipped; report page: ${(gzipSync(report, { level: 9 }).length / 1000).toFixed(1)} KB`,
);
