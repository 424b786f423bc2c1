// Starts the server of the page and a headless Chromium for tests.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { chromium } from "playwright-core";

// serve starts the server with arguments, and returns its URL and a function that ends it.
export async function serve(...args) {
  const process_ = spawn(process.env.PAGE_SERVER || "../../bin/page", args, { stdio: ["ignore", "pipe", "inherit"] });
  const [first] = await once(process_.stdout, "data");
  return {
    url: String(first).trim(),
    async end() {
      process_.kill("SIGINT");
      if (process_.exitCode === null) await once(process_, "exit");
    },
  };
}

// open starts a browser.
export function open() {
  return chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
}

// flaws returns what is cut off on a page, and which rules of accessibility it breaks.
export async function flaws(page) {
  await page.evaluate(await readFile(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8"));
  const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
  const node = (n) => `${n.html.slice(0, 120)} ${n.any[0]?.message || ""}`;
  const found = violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(node).join(" | ")}`);
  if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) found.push("the page scrolls sideways");
  if (passes.length <= 20) found.push(`only ${passes.length} rules of accessibility were checked`);
  return found;
}
