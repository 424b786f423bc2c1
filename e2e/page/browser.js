// Starts the server of the page and a headless Chromium for tests.
import { spawn } from "node:child_process";
import { once } from "node:events";
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
