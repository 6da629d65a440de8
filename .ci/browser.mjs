// Open pages in Chromium: node browser.mjs HOME TASK...; a task is `shoot PAGE#VIEW NAME`, `check PAGE` or `time PAGE`.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [home, task, ...rest] = process.argv.slice(2);
const require = createRequire(`${home}/`);
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const SIZES = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844, isMobile: true, hasTouch: true } };
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"],
});

const open = async (address, { size = "desktop", scheme = "light", bypass = false } = {}) => {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("request", (request) => request.url().startsWith("file:") || errors.push(`requests ${request.url()}`));
  await page.setViewport({ deviceScaleFactor: 1, ...SIZES[size] });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setBypassCSP(bypass);
  const [path, hash] = address.split("#");
  await page.goto(pathToFileURL(path).href + (hash ? `#${hash}` : ""), { waitUntil: "load" });
  return { page, errors };
};

let failed = false;
if (task === "shoot") {
  // shoot PAGE#VIEW FILE SIZE SCHEME [full]
  const [address, file, size, scheme, full] = rest;
  const { page, errors } = await open(address, { size, scheme });
  if (full === "diff") await page.evaluate(() => document.querySelector("details.diff")?.setAttribute("open", ""));
  await new Promise((done) => setTimeout(done, 100));
  await page.screenshot({ path: file, fullPage: full === "full" });
  failed = errors.length > 0;
  errors.forEach((error) => console.log(`${address}: ${error}`));
} else if (task === "check") {
  // check PAGE VIEW...: axe in both schemes and sizes; serious and critical findings fail
  const [path, ...views] = rest;
  for (const size of Object.keys(SIZES))
    for (const scheme of ["light", "dark"])
      for (const view of views) {
        const { page, errors } = await open(`${path}#${view}`, { size, scheme, bypass: true });
        await page.evaluate(() => document.querySelector("main > .current details.diff")?.setAttribute("open", ""));
        await page.evaluate(axe);
        const result = await page.evaluate(() => window.axe.run(document));
        const bad = result.violations.filter((found) => ["serious", "critical"].includes(found.impact));
        for (const found of result.violations)
          console.log(`${size} ${scheme} #${view}: ${found.impact} ${found.id}: ${found.nodes.length} x ${found.help}: ${found.nodes[0].html.slice(0, 160)}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (overflow > 0) console.log(`${size} #${view}: ${overflow} pixels wider than the window`);
        errors.forEach((error) => console.log(`${size} ${scheme} #${view}: ${error}`));
        failed ||= bad.length > 0 || overflow > 0 || errors.length > 0;
        await page.close();
      }
} else if (task === "time") {
  // time PAGE: milliseconds to the end of the page's script, to the table of packages, and of one search
  for (let run = 0; run < 5; run++) {
    const { page } = await open(`${rest[0]}#packages`);
    const times = await page.evaluate(() => {
      const loaded = performance.getEntriesByType("navigation")[0];
      const started = performance.now();
      const search = document.getElementById("search");
      search.value = "europe 7";
      search.dispatchEvent(new Event("input"));
      document.body.getBoundingClientRect();
      return { interactive: Math.round(loaded.domInteractive), load: Math.round(loaded.loadEventEnd),
        paint: Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0),
        search: Math.round(performance.now() - started), rows: document.querySelectorAll("#table tbody tr").length };
    });
    console.log(JSON.stringify(times));
    await page.close();
  }
}
await browser.close();
process.exit(failed ? 1 : 0);
