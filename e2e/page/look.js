// Looks at the page of PAGE_URL, such as that of a lab, or else of a generated fleet: waits until the sections of EXPECT, an object of lists,
// have these texts, checks it, and takes pictures in two widths and two colors, into the folder PICTURES; in the first of these also of the
// sections of SECTIONS. Without PICTURES it looks once.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { flaws, open, serve } from "./browser.js";

const folder = process.env.PICTURES;
const expected = JSON.parse(process.env.EXPECT || "{}");
const sections = process.env.SECTIONS ? process.env.SECTIONS.split(",") : [];
const all = [1280, 400].flatMap((width) => ["light", "dark"].map((colorScheme) => ({ width, colorScheme })));
if (folder) await mkdir(folder, { recursive: true });
const server = process.env.PAGE_URL ? { url: process.env.PAGE_URL, end() {} } : await serve("--machines", process.env.MACHINES || "10000");
const browser = await open();
const has = ([id, texts]) => texts.every((t) => document.getElementById(id).textContent.includes(t));

async function look(width, colorScheme, isFirst) {
  const page = await browser.newPage({ viewport: { width, height: width > 700 ? 900 : 860 }, colorScheme });
  page.setDefaultTimeout(600_000); // for what hangs
  const problems = [];
  page.on("console", (m) => { if (m.type() === "error") problems.push(m.text()); });
  page.on("pageerror", (e) => problems.push(String(e)));
  await page.goto(server.url);
  await page.waitForSelector('#live[data-state="live"]');
  await page.waitForSelector("#groups .group");
  for (const section of Object.entries(expected)) {
    await page.waitForFunction(has, section, { timeout: 60_000 }).catch(async () => {
      assert.fail(`${section[0]}: expected ${section[1].join(", ")} in: ${await page.locator(`#${section[0]}`).textContent()}`);
    });
  }
  if (folder) {
    await page.screenshot({ path: `${folder}/page-${width}-${colorScheme}.png` });
    for (const section of isFirst ? sections : []) {
      await page.locator(`#${section}`).evaluate((e) => e.scrollIntoView({ behavior: "instant" }));
      await page.waitForTimeout(300); // tiles are drawn when they are seen
      await page.screenshot({ path: `${folder}/page-${width}-${colorScheme}-${section}.png` });
    }
  }
  assert.deepEqual([...await flaws(page), ...problems], []);
  await page.close();
}

try {
  for (const [i, { width, colorScheme }] of (folder ? all : all.slice(0, 1)).entries()) await look(width, colorScheme, i === 0);
} finally {
  await browser.close();
  await server.end();
}
