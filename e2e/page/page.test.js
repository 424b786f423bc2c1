// Tests the page of the fleet in a headless Chromium, with generated fleets.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { flaws, open, serve } from "./browser.js";

let browser;
before(async () => { browser = await open(); });
after(() => browser.close());

// hang is how long, in milliseconds, a browser may take for anything: it is for what hangs, also on
// a busy computer.
const hang = 600_000;

// visit opens the page of a server, and returns it with what must not happen on it.
async function visit(server, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  page.setDefaultTimeout(hang);
  const problems = [];
  page.on("console", (m) => { if (m.type() === "error") problems.push(m.text()); });
  page.on("pageerror", (e) => problems.push(String(e)));
  page.on("dialog", (d) => { problems.push(`a dialog: ${d.message()}`); d.dismiss(); });
  page.on("request", (r) => { if (!r.url().startsWith(new URL("/", server.url).href)) problems.push(`a request to ${r.url()}`); });
  await page.goto(server.url);
  return { page, problems };
}

const live = (page) => page.waitForSelector('#live[data-state="live"]');

async function withServer(args, run) {
  const server = await serve(...args);
  try {
    await run(server);
  } finally {
    await server.end();
  }
}

test("10,000 machines are shown, and nothing is requested from elsewhere", () => withServer(["--machines", "10000"], async (server) => {
  const { page, problems } = await visit(server);
  const begun = Date.now();
  await live(page);
  await page.waitForFunction(() => document.querySelectorAll("#groups .group").length === 40);
  console.log(`shown after ${Date.now() - begun} ms`);
  assert.equal(await page.locator("#machines .count").textContent(), "10,000");
  assert.equal(await page.locator("#counts dd").first().textContent(), "10,000");
  const painted = await page.locator("#groups canvas").first().evaluate((c) => c.getContext("2d").getImageData(2, 2, 1, 1).data[3]);
  assert.equal(painted, 255, "the first tile is not painted");
  for (const [section, text] of Object.entries({
    trouble: "TargetUnavailable", rollouts: "DrainBlocked", drains: "shop/cart", breakers: "zone eu-2c", targets: "shoot--b--us1",
    orphans: "worker-4", deletions: "worker-0-gone-0", "fleet-section": "is silent",
  })) {
    assert.match(await page.locator(`#${section}`).textContent(), new RegExp(text), section);
  }
  assert.deepEqual(problems, []);
}));

test("machines without a tile are counted, and the page says so", () => withServer(["--machines", "20100"], async (server) => {
  const { page, problems } = await visit(server);
  await live(page);
  await page.getByText("100 more machines have no tile").waitFor();
  assert.equal(await page.locator("#machines .count").textContent(), "20,000 of 20,100");
  assert.equal(await page.locator("#counts dd").first().textContent(), "20,100");
  assert.deepEqual(problems, []);
}));

test("texts of objects are shown as text", () => withServer(["--machines", "400"], async (server) => {
  const { page, problems } = await visit(server);
  await live(page);
  await page.getByRole("cell", { name: /<script>alert\(1\)<\/script>/ }).first().waitFor();
  assert.equal(await page.locator("body script").count(), 0);
  assert.deepEqual(problems, []);
}));

test("changes arrive while the page is open", () => withServer(["--machines", "200", "--step", "40"], async (server) => {
  const { page, problems } = await visit(server);
  await live(page);
  await page.locator("#numbers summary").click();
  const numbers = () => page.locator("#numbers").textContent();
  const first = await numbers();
  await page.waitForFunction((was) => document.querySelector("#numbers").textContent !== was, first);
  assert.deepEqual(problems, []);
}));

test("a lost connection is reported, and the page shows what it had", async () => {
  const server = await serve("--machines", "50");
  const { page } = await visit(server);
  await live(page);
  await server.end();
  await page.waitForSelector('#live[data-state="lost"]');
  assert.match(await page.locator("#live").textContent(), /may be old/);
  assert.equal(await page.locator("#machines .count").textContent(), "50");
});

test("machines are found, grouped and reached by keyboard", () => withServer(["--machines", "400"], async (server) => {
  const { page, problems } = await visit(server);
  await live(page);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to machines");
  await page.keyboard.press("Enter");
  await page.getByRole("radio", { name: "zone" }).focus();
  await page.keyboard.press("Space");
  await page.waitForFunction(() => document.querySelectorAll("#groups .group").length === 6);
  await page.getByRole("searchbox").fill("worker-7-");
  await page.waitForFunction(() => document.querySelector("#machines .count").textContent === "10 of 400");
  const group = page.locator("#groups canvas").first();
  await group.focus();
  const detail = page.locator("#detail");
  await page.waitForFunction(() => document.querySelector("#detail").textContent.includes("worker-7-"));
  const first = await detail.textContent();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction((was) => document.querySelector("#detail").textContent !== was, first);
  await page.getByRole("searchbox").fill("");
  await page.getByLabel("only with trouble").check();
  await page.waitForFunction(() => /^\d+ of 400$/.test(document.querySelector("#machines .count").textContent));
  await page.getByRole("searchbox").fill("no such machine");
  await page.getByText("No machine matches.").waitFor();
  assert.deepEqual(problems, []);
}));

const withLogin = ["--machines", "50", "--token", "let-me-in"];

test("a login keeps nothing but a cookie that scripts cannot read", () => withServer(withLogin, async (server) => {
  const context = await browser.newContext();
  context.setDefaultTimeout(hang);
  const page = await context.newPage();
  await page.goto(server.url);
  await page.getByLabel(/Token of a user/).fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").filter({ hasText: "does not know this token" }).waitFor();
  await page.getByLabel(/Token of a user/).fill("let-me-in");
  await page.keyboard.press("Enter");
  await live(page);
  const [cookie] = await context.cookies();
  assert.equal((await context.cookies()).length, 1);
  assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === "Strict" && !cookie.value.includes("let-me-in"));
  assert.equal(await page.evaluate(() => document.cookie + localStorage.length + sessionStorage.length), "00");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel(/Token of a user/).waitFor();
  assert.equal((await context.cookies()).length, 0);
  await context.close();
}));

for (const width of [1280, 400]) {
  for (const colorScheme of ["light", "dark"]) {
    const name = `${width} px, ${colorScheme}: nothing is cut off, and no rule of accessibility is broken`;
    test(name, () => withServer(["--machines", "2000"], async (server) => {
      const { page, problems } = await visit(server, { viewport: { width, height: 900 }, colorScheme });
      await live(page);
      await page.locator("#numbers summary").click();
      assert.deepEqual(await flaws(page), []);
      assert.deepEqual(problems, []);
    }));
  }
}
