// As much of a browser as the page's modules touch when they are loaded, for tests of their rules in Node. What needs a
// real page (drawing, sanitizing, the keyboard) is tested in tests/e2e.
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";
import DOMPurify from "dompurify";
import { transformSync } from "esbuild";

// Node strips types from .ts by itself, and does not know JSX.
registerHooks({
  load(url, context, next) {
    if (!url.endsWith(".tsx")) return next(url, context);
    const source = readFileSync(fileURLToPath(url), "utf8");
    const { code } = transformSync(source, { loader: "tsx", jsx: "automatic", jsxImportSource: "preact" });
    return { format: "module", source: code, shortCircuit: true };
  },
});

const page = new EventTarget();
const kept = new Map();
const browser = {
  addEventListener: page.addEventListener.bind(page),
  dispatchEvent: page.dispatchEvent.bind(page),
  document: Object.assign(new EventTarget(), { hidden: false, hasFocus: () => true }),
  localStorage: { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => void kept.set(key, value) },
  location: { href: "http://hub.test:7117/", hash: "", reload: () => undefined },
  // The page asks for the roster every few seconds; here nothing happens by itself.
  setInterval: () => 0,
};
for (const [name, value] of Object.entries(browser))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });

// Without a document it cannot sanitize, and has no hooks.
DOMPurify.addHook ??= () => undefined;
