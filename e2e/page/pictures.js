// Takes pictures of the page in two widths and two colors, into the folder pictures: of PAGE_URL, such as that of a lab, or else of a
// generated fleet.
import { mkdir } from "node:fs/promises";
import { open, serve } from "./browser.js";

const folder = process.env.PICTURES || "pictures";
await mkdir(folder, { recursive: true });
const server = process.env.PAGE_URL ? { url: process.env.PAGE_URL, end() {} } : await serve("--machines", process.env.MACHINES || "10000");
const browser = await open();
try {
  for (const [width, height] of [[1280, 900], [400, 860]]) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await browser.newPage({ viewport: { width, height }, colorScheme });
      await page.goto(server.url);
      await page.waitForSelector('#live[data-state="live"]');
      await page.waitForSelector("#groups .group");
      await page.screenshot({ path: `${folder}/page-${width}-${colorScheme}.png` });
      for (const section of process.env.SECTIONS ? process.env.SECTIONS.split(",") : []) {
        await page.locator(`#${section}`).evaluate((e) => e.scrollIntoView({ behavior: "instant" }));
        await page.waitForTimeout(300); // tiles are drawn when they are seen
        await page.screenshot({ path: `${folder}/page-${width}-${colorScheme}-${section}.png` });
      }
      await page.close();
    }
  }
} finally {
  await browser.close();
  await server.end();
}
