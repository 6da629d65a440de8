// Look at HTML reports in Chromium; .ci/report calls this.
//   shoot PAGE#VIEW FILE SIZE SCHEME   a picture; of the size `forge`, the whole page
//   check PAGE VIEW...                 axe-core, errors, requests and width in both sizes and schemes
//   keys PAGE                          what keys and filters do
//   time PAGE                          milliseconds until the page can be used; at most 1,000
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [home, task, ...rest] = process.argv.slice(2);
const require = createRequire(`${home}/`);
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const MOST_MILLISECONDS = 1000;
const SIZES = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844, isMobile: true, hasTouch: true }, forge: { width: 860, height: 200 } };
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

const shoot = async (address, file, size, scheme) => {
  const { page, errors } = await open(address, { size, scheme });
  await page.screenshot({ path: file, fullPage: size === "forge" });
  await page.close();
  return errors;
};

const check = async (path, ...views) => {
  const wrong = [];
  for (const size of Object.keys(SIZES))
    for (const scheme of ["light", "dark"])
      for (const view of views) {
        const place = `${size} ${scheme} #${view}`;
        const own = await open(`${path}#${view}`, { size, scheme });
        wrong.push(...own.errors.map((error) => `${place}: ${error}`));
        await own.page.close();
        // The policy of the page would refuse the script of axe.
        const { page } = await open(`${path}#${view}`, { size, scheme, bypass: true });
        await page.evaluate(() => document.querySelector("main > .current details.diff")?.setAttribute("open", ""));
        await page.evaluate(axe);
        const { violations, passes } = await page.evaluate(() => window.axe.run(document));
        if (!passes.length) wrong.push(`${place}: axe checked nothing`);
        for (const { impact, id, help, nodes } of violations) wrong.push(`${place}: ${impact} ${id}: ${help}: ${nodes[0].html.slice(0, 160)}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (overflow > 0) wrong.push(`${place}: ${overflow} pixels wider than the window`);
        const cut = await page.evaluate(() => [...document.querySelectorAll(".top a")].filter((link) => link.getBoundingClientRect().right > innerWidth).map((link) => link.textContent));
        if (cut.length) wrong.push(`${place}: cuts ${cut}`);
        const squeezed = await page.evaluate(() => (innerWidth < 500 ? [...document.querySelectorAll("#table tbody th")] : []).filter((cell) => cell.offsetParent && cell.offsetWidth < 0.8 * innerWidth).length);
        if (squeezed) wrong.push(`${place}: squeezes ${squeezed} packages`);
        await page.close();
      }
  return wrong;
};

const keys = async (path) => {
  const { page, errors } = await open(path);
  const wrong = errors;
  const expect = async (what, value, wanted) => {
    const found = await page.evaluate(value);
    if (String(found) !== String(wanted)) wrong.push(`${what}: ${found}, not ${wanted}`);
  };
  const rows = () => document.querySelectorAll("#table tbody tr").length;
  await page.keyboard.press("/");
  await page.waitForFunction(() => document.activeElement.id === "search");
  await page.keyboard.type("europe-01/web");
  await expect("rows of a search", rows, 1);
  await page.keyboard.press("ArrowDown");
  await expect("focus after the arrow", () => document.activeElement.textContent, "cluster-europe-01/web");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash === "#/cluster-europe-01/web");
  await expect("title of the package", () => document.querySelector("#package-title").textContent, "cluster-europe-01/web");
  await expect("sections of the package", () => document.querySelectorAll("#package-body h3").length, 2);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => location.hash.startsWith("#packages"));
  await expect("rows after going back", rows, 1);
  await page.click("#filters button[type=reset]");
  await expect("rows without a filter", rows, 17);
  await page.select("#change", "delete");
  await expect("rows of deletions", rows, 1);
  await page.goto(`${pathToFileURL(path).href}#packages?change=update`);
  await expect("rows of a link", rows, 10);
  await page.click("#table thead button");
  await page.click("#table thead button");
  await expect("first row, sorted down", () => document.querySelector("#table tbody a").textContent, "cluster-europe-05/web");
  await page.select("#theme", "dark");
  await expect("background of the dark theme", () => getComputedStyle(document.body).backgroundColor, "rgb(13, 17, 23)");
  await page.goto(`${pathToFileURL(path).href}#/cluster-europe-01/web`);
  await page.waitForFunction(() => document.activeElement.id === "package-title");
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => location.hash === "#/cluster-america-05/web");
  await page.setJavaScriptEnabled(false);
  await page.goto(pathToFileURL(path).href);
  await page.reload();
  const text = await page.$eval("main", (main) => main.innerText);
  for (const part of ["10 to update", "deletion: deletes package web", "need JavaScript"])
    if (!text.includes(part)) wrong.push(`without JavaScript there is no "${part}"`);
  await page.close();
  return wrong;
};

const time = async (path) => {
  const times = [];
  for (let run = 0; run < 5; run++) {
    const { page } = await open(`${path}#packages`);
    times.push(await page.evaluate(() => {
      const { domInteractive, loadEventEnd } = performance.getEntriesByType("navigation")[0];
      const rows = document.querySelectorAll("#table tbody tr").length;
      const search = document.getElementById("search"), started = performance.now();
      search.value = "cluster-0777 web";
      search.dispatchEvent(new Event("input"));
      document.body.getBoundingClientRect();
      const found = document.querySelectorAll("#table tbody tr").length;
      return { interactive: Math.round(Math.max(domInteractive, loadEventEnd)), search: Math.round(performance.now() - started), rows, found };
    }));
    await page.close();
  }
  times.sort((one, other) => one.interactive - other.interactive);
  const median = times[2];
  console.log(`interactive after ${median.interactive} ms, first search ${median.search} ms (median of 5)`);
  const wrong = median.interactive > MOST_MILLISECONDS ? [`interactive after ${median.interactive} ms`] : [];
  return median.rows === 100 && median.found === 1 ? wrong : [...wrong, `shows ${median.rows} rows, finds ${median.found}`];
};

const wrong = await { shoot, check, keys, time }[task](...rest);
wrong.forEach((line) => console.log(`${rest[0]}: ${line}`));
await browser.close();
process.exit(wrong.length ? 1 : 0);
