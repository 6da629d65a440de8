"use strict";
// Everything is made of elements and text: no text of the report is ever parsed as HTML.
(() => {
  const { texts, lists, columns: COLUMNS, packages, diffs, kind, clusters: registered } = JSON.parse(document.getElementById("data").textContent);
  // Ages are of the day on which somebody looks: the file itself has dates, so that equal runs give equal bytes.
  const age = (date) => `${Math.max(0, Math.floor((Date.now() - Date.parse(date)) / 864e5))} d`;
  const AT = Object.fromEntries(COLUMNS.map((name, index) => [name, index]));
  const ROWS = 100, MATRIX_ROWS = 50, MATRIX_COLUMNS = 30, PRINTED_ROWS = 1000, OPEN_LINES = 400;
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;

  const element = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") made.addEventListener(name, value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== undefined && value !== "") made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== "" && child !== null && child !== undefined));
    return made;
  };

  // The names of a package are left out of its texts: four control characters stand for them.
  const names = (row) => {
    if (!row.names) {
      row.names = [texts[row[0]], texts[row[1]], texts[row[2]]];
      row.names.push(filled(row, texts[row[3]]));
    }
    return row.names;
  };
  const MARK = /[\x01-\x04]/, MARKS = /[\x01-\x04]/g;
  const filled = (row, text) => text.replace(MARKS, (mark) => names(row)[mark.charCodeAt(0) - 1]);
  const plain = texts.map((text) => !MARK.test(text));
  const text = (row, number) => (plain[number] ? texts[number] : filled(row, texts[number]));
  const get = (row, column) => (AT[column] < 4 ? names(row)[AT[column]] : text(row, row[AT[column]]));
  const list = (row, column) => lists[row[AT[column]]].map((number) => text(row, number));
  const records = (row, column) =>
    lists[row[AT[column]]].map((record) => lists[record].map((number) => text(row, number)));
  const fullName = (row) => (row[0] ? `${names(row)[0]}/${names(row)[1]}` : names(row)[1]);
  const address = (row) => `#/${fullName(row).split("/").map(encodeURIComponent).join("/")}`;
  const short = (version) => version.slice(version.lastIndexOf("/") + 1);
  // `web/v1 → v2`: the name is not repeated.
  const moves = (row, shown) => {
    const [main, review] = [get(row, "main"), get(row, "review")];
    const isSame = main.slice(0, -short(main).length) === review.slice(0, -short(review).length);
    return [shown(main), isSame && main ? short(review) : shown(review)].filter(Boolean).join(" → ");
  };
  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const slug = (word) => word.replaceAll(" ", "-");
  const searched = (row) => {
    if (row.searched === undefined) {
      const columns = ["cluster", "set", "main", "review", "phase", "op", "reason", "pull", "waiting_for", "detail"];
      row.searched = [fullName(row), ...columns.map((column) => get(row, column)), ...list(row, "categories")]
        .join("\n").toLowerCase();
    }
    return row.searched;
  };

  // Theme
  const theme = $("theme");
  const useTheme = (value) => {
    if (value) root.dataset.theme = value;
    else delete root.dataset.theme;
  };
  try {
    theme.value = localStorage.getItem("reconciler-theme") || "";
  } catch { /* a page in a file may have no storage */ }
  useTheme(theme.value);
  theme.addEventListener("change", () => {
    useTheme(theme.value);
    try {
      localStorage.setItem("reconciler-theme", theme.value);
    } catch { /* the same */ }
  });

  // Filters
  const FACETS = ["change", "state", "risk", "set"];
  const OF_FACET = {
    change: (row) => [get(row, "op")],
    state: (row) => [get(row, "phase")],
    risk: (row) => list(row, "categories"),
    set: (row) => [get(row, "set")],
  };
  const filter = { q: "", cause: "", change: "", state: "", risk: "", set: "" };
  let order = { column: "", down: false };
  let shown = packages;
  let first = 0, gridFirst = 0;

  const options = (facet) => {
    const counts = new Map();
    for (const row of packages)
      for (const value of OF_FACET[facet](row)) if (value) counts.set(value, (counts.get(value) || 0) + 1);
    const select = $(facet);
    select.replaceChildren(element("option", { value: "" }, "all"));
    select.firstChild.value = "";
    for (const [value, number] of counts) {
      const option = element("option", {}, `${value} (${number.toLocaleString("en")})`);
      option.value = value;
      select.append(option);
    }
    select.closest("label").hidden = counts.size < 1;
  };

  const choose = () => {
    const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
    const active = FACETS.filter((facet) => filter[facet]);
    shown = packages.filter((row) =>
      active.every((facet) => OF_FACET[facet](row).includes(filter[facet])) &&
      (filter.cause === "" || row[AT.cause] === Number(filter.cause)) &&
      words.every((word) => searched(row).includes(word)));
    if (order.column) {
      const keyed = shown.map((row) => [sortKey(row, order.column), row]);
      keyed.sort(([a], [b]) => (a === b ? 0 : a === "" ? 1 : b === "" ? -1 : (a < b ? -1 : 1) * (order.down ? -1 : 1)));
      shown = keyed.map(([, row]) => row);
    }
  };
  const sortKey = (row, column) => (column === "name" ? fullName(row) : column === "main" ? moves(row, String) : get(row, column));

  const query = () => {
    const used = Object.entries(filter).filter(([, value]) => value !== "");
    return used.length ? `?${new URLSearchParams(used)}` : "";
  };
  const showForm = () => {
    $("search").value = filter.q;
    for (const facet of FACETS) if ($(facet)) $(facet).value = filter[facet];
  };
  const matches = () => {
    const cause = filter.cause === "" ? "" : `, of one cause in the overview`;
    return `${count(shown.length, "package")}${shown.length === packages.length ? "" : ` of ${packages.length.toLocaleString("en")}`}${cause}`;
  };

  // The table of packages
  const hasClusters = packages.some((row) => row[2] && row[2] !== row[0]);
  // A deletion in review has a sign of its own.
  const sign = (row) => (get(row, "reason") === "DeletionProposed" ? "deletion in review" : get(row, "phase"));
  const dot = (word) => element("span", { class: `dot phase-${slug(word)}`, "aria-hidden": "true" });
  const state = (row) => (sign(row) ? element("span", { class: "state" }, dot(sign(row)), sign(row)) : "");
  const badge = (op) => (op ? element("span", { class: `op op-${slug(op)}` }, op) : "");
  const link = (url, label) => (url ? element("a", { href: url, rel: "noopener noreferrer" }, label) : label);
  const pull = (row) => link(get(row, "pull_url"), get(row, "pull"));
  const explanation = (row) => {
    // A detail tells what is waited for, but for who reviews.
    const detail = get(row, "detail"), told = detail || get(row, "phase") === "pending";
    const waits = told && get(row, "phase") !== "in review" ? "" : get(row, "waiting_for");
    return [detail, waits && `waits for ${waits}`].filter(Boolean).join("; ");
  };
  const TABLE = [
    { key: "name", head: "Package", cell: (row) => element("th", { scope: "row" },
      element("a", { href: address(row) }, fullName(row)),
      element("span", { class: "narrow" }, moves(row, String)),
      element("span", { class: "narrow" }, explanation(row))) },
    ...(hasClusters ? [{ key: "cluster", head: "Cluster", wide: true, cell: (row) => get(row, "cluster") }] : []),
    ...(kind === "status" ? [] : [{ key: "op", head: "Change", cell: (row) => badge(get(row, "op")) }]),
    { key: "main", head: "Version", wide: true, nowrap: true, cell: (row) => moves(row, String) },
    { key: "phase", head: "State", cell: state },
    { key: "since", head: "Since", wide: true, nowrap: true, cell: (row) => get(row, "since") },
    { key: "pull", head: "Pull request", wide: true, cell: pull },
    { key: "detail", head: "Detail", wide: true, detail: true, cell: (row) => element("span", {},
      list(row, "categories").length ? element("span", { class: "danger" }, `${[...new Set(list(row, "categories"))].join(", ")} `) : "",
      explanation(row)) },
  ];
  const used = TABLE.filter((column) => column.key === "name" || packages.some((row) => column.key === "detail" || get(row, column.key)));
  const classes = (column) => [column.wide && "wide", column.nowrap && "nowrap", column.detail && "detail"].filter(Boolean).join(" ");

  const tableHead = () => element("thead", {}, element("tr", {}, ...used.map((column) => {
    const sorted = order.column === column.key ? (order.down ? "descending" : "ascending") : undefined;
    const sort = () => {
      order = { column: column.key, down: order.column === column.key && !order.down };
      update();
      [...$("table").querySelectorAll("thead button")][used.indexOf(column)].focus();
    };
    const mark = sorted ? (order.down ? " ▾" : " ▴") : "";
    return element("th", { scope: "col", "aria-sort": sorted, class: classes(column) },
      element("button", { type: "button", click: sort }, column.head + mark));
  })));
  const tableRow = (row) => element("tr", {}, ...used.map((column) => {
    const cell = column.cell(row);
    if (cell instanceof Element && cell.tagName === "TH") return cell;
    return element("td", { class: classes(column) }, cell);
  }));
  const showTable = (rows = ROWS) => {
    first = Math.min(first, Math.max(0, shown.length - 1));
    $("matches").textContent = matches();
    const part = shown.slice(first, first + rows);
    $("table").replaceChildren(
      element("caption", { class: "quiet" }, "Packages"), tableHead(), element("tbody", {}, ...part.map(tableRow)));
    pages($("pager"), first, rows, shown.length, (start) => {
      first = start;
      showTable();
      scrollTo(0, 0);
    });
  };
  const pages = (place, start, size, total, go) => {
    place.replaceChildren();
    if (total <= size) return;
    const button = (label, target, off) => element("button", { type: "button", disabled: off, click: () => go(target) }, label);
    const end = Math.min(start + size, total);
    place.append(button("Previous", Math.max(0, start - size), start === 0),
      `${(start + 1).toLocaleString("en")} to ${end.toLocaleString("en")} of ${total.toLocaleString("en")}`,
      button("Next", start + size, end >= total));
  };

  // The matrix
  const ENDS = ["delete", "orphan", "close"];
  const byCount = (counts) => [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).map(([value]) => value);
  const showMatrix = () => {
    const clusters = new Map(), wares = new Map(), cells = new Map(), versions = new Map();
    const unread = new Map(registered.filter(([, why]) => why));
    // Every registered cluster has its place, unless a filter chooses among packages.
    if (!query()) for (const [name] of registered) clusters.set(name, 0);
    for (const row of shown) {
      const cluster = names(row)[2] || names(row)[0], ware = names(row)[1];
      if (!cluster) continue;
      clusters.set(cluster, (clusters.get(cluster) || 0) + 1);
      wares.set(ware, (wares.get(ware) || 0) + 1);
      const key = `${cluster}\n${ware}`;
      cells.set(key, [...(cells.get(key) || []), row]);
      if (!versions.has(ware)) versions.set(ware, new Map());
      const label = short(get(row, "main")) || "not on main", known = versions.get(ware);
      known.set(label, (known.get(label) || 0) + 1);
    }
    const upright = wares.size <= clusters.size;
    const across = byCount(upright ? wares : clusters), down = [...(upright ? clusters : wares).keys()].sort();
    gridFirst = Math.min(gridFirst, Math.max(0, down.length - 1));
    const left = across.length - MATRIX_COLUMNS;
    $("matrix-matches").textContent = matches() + (left > 0 ? `; ${left.toLocaleString("en")} further columns are left out: search for fewer packages` : "");
    const columns = across.slice(0, MATRIX_COLUMNS), rows = down.slice(gridFirst, gridFirst + MATRIX_ROWS);
    const sum = (ware) => byCount(versions.get(ware)).map((label) => `${label}: ${versions.get(ware).get(label)}`).join(", ");
    const head = element("tr", {}, element("th", { scope: "col" }, upright ? "Cluster" : "Package"),
      ...columns.map((name) => element("th", { scope: "col" }, name, upright ? element("small", {}, sum(name)) : "")));
    const cell = (found) => element("td", {}, ...(found || []).map((row) => element("a", { href: address(row) },
      dot(sign(row) || "none"),
      [moves(row, short), ENDS.includes(get(row, "op")) || (!moves(row, short) && get(row, "op") !== "keep") ? get(row, "op") : ""].filter(Boolean).join(" "), element("span", { class: "quiet" }, ` ${sign(row)}`))));
    const rowHead = (name) => element("th", { scope: "row" }, name,
      upright && unread.has(name) ? element("small", { title: unread.get(name) }, "could not be read") : "");
    $("grid").replaceChildren(element("caption", { class: "quiet" }, "Packages by cluster"), element("thead", {}, head),
      element("tbody", {}, ...rows.map((name) => element("tr", {}, rowHead(name),
        ...columns.map((column) => cell(cells.get(upright ? `${name}\n${column}` : `${column}\n${name}`)))))));
    pages($("matrix-pager"), gridFirst, MATRIX_ROWS, down.length, (start) => {
      gridFirst = start;
      showMatrix();
      scrollTo(0, 0);
    });
    const signs = new Set(shown.map(sign).filter(Boolean));
    $("legend").replaceChildren(...[...signs].map((each) => element("li", {}, dot(each), each)));
  };

  // Differences
  let sideBySide = innerWidth >= 1100;
  const parsed = (hunks) => {
    let before = 0, after = 0;
    return hunks.split("\n").map((line) => {
      const at = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
      if (at) {
        [before, after] = [Number(at[1]), Number(at[2])];
        return { sign: "@", line };
      }
      const sign = line[0];
      if (sign === "+") return { sign, line, after: after++ };
      if (sign === "-") return { sign, line, before: before++ };
      if (sign === "\\") return { sign: "@", line };
      return { sign: " ", line, before: before++, after: after++ };
    });
  };
  const KINDS = { "+": "add", "-": "del", "@": "at", " ": "" };
  const number = (value, wide) => element("td", { class: `line${wide ? " wide" : ""}` }, value === undefined ? "" : String(value));
  const unified = (rows) => rows.map((row) => element("tr", { class: KINDS[row.sign] },
    number(row.before, true), number(row.after), element("td", {}, row.line)));
  const sides = (rows) => {
    const made = [];
    let removed = [], added = [];
    const half = (row) => (row ? [number(row.sign === "+" ? row.after : row.before), element("td", { class: KINDS[row.sign] }, row.line)]
      : [number(undefined), element("td", { class: "void" })]);
    const flush = () => {
      for (let index = 0; index < Math.max(removed.length, added.length); index++)
        made.push(element("tr", {}, ...half(removed[index]), ...half(added[index])));
      [removed, added] = [[], []];
    };
    for (const row of rows) {
      if (row.sign === "-") {
        if (added.length) flush();
        removed.push(row);
      } else if (row.sign === "+") added.push(row);
      else {
        flush();
        if (row.sign === "@") made.push(element("tr", { class: "at" }, element("td", { colspan: 4 }, row.line)));
        else made.push(element("tr", {}, number(row.before), element("td", {}, row.line), number(row.after), element("td", {}, row.line)));
      }
    }
    flush();
    return made;
  };
  const fileDiff = (reference) => {
    const [path, action, note, added, removed, hunks] = lists[reference];
    const rows = texts[hunks] ? parsed(texts[hunks]) : [];
    const heading = element("summary", {}, texts[path], " ", texts[action] ? `(${texts[action]}) ` : "",
      added ? element("span", { class: "plus" }, `+${added} `) : "", removed ? element("span", { class: "minus" }, `−${removed}`) : "");
    const columns = () => element("colgroup", {}, ...["line", "", "line", ""].map((name) => element("col", { class: name })));
    const twoSides = sideBySide && added && removed;
    const table = () => element("table", { class: `hunks${twoSides ? " sides" : ""}` },
      element("caption", { class: "quiet" }, `Difference of ${texts[path]}`), twoSides ? columns() : "",
      element("tbody", {}, ...(twoSides ? sides(rows) : unified(rows))));
    const details = element("details", { class: "file", open: rows.length <= OPEN_LINES }, heading,
      texts[note] ? element("p", { class: "note" }, texts[note]) : "");
    const fill = () => {
      if (details.open && rows.length && !details.querySelector("table")) details.append(table());
    };
    details.addEventListener("toggle", fill);
    fill();
    return details;
  };
  const diffView = (index) => {
    const [name, packagesOf, files, note] = diffs[index];
    const place = element("div", { class: "patch" });
    const show = () => {
      const choice = (label, value) => element("button", { type: "button", "aria-pressed": String(sideBySide === value), click: () => {
        sideBySide = value;
        show();
        place.querySelector("button[aria-pressed=true]").focus();
      } }, label);
      const equal = packagesOf > 1 ? element("p", { class: "muted" }, `Equal in ${count(packagesOf, "package")}; shown as in ${name}.`) : "";
      place.replaceChildren(
        files.length ? element("div", { class: "choose" }, choice("Unified", false), choice("Side by side", true), equal) : equal,
        note ? element("p", { class: "muted" }, note) : "", ...files.map(fileDiff));
    };
    show();
    return place;
  };
  for (const details of document.querySelectorAll("details[data-diff]")) {
    details.addEventListener("toggle", () => {
      if (details.open && !details.querySelector(".patch")) details.append(diffView(Number(details.dataset.diff)));
    });
  }

  // The page of a package
  const part = (title, ...content) => [element("h3", {}, title), ...content];
  const plainTable = (caption, all, cells) => {
    const used = [...all.keys()].filter((index) => cells.some((row) => row[index]));  // none that no row fills
    return tableOf(caption, used.map((index) => all[index]), cells.map((row) => used.map((index) => row[index])));
  };
  const tableOf = (caption, heads, rows) => element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    // The roles hold where a narrow window lays rows out as blocks.
    element("table", { class: "stack", role: "table" }, element("caption", { class: "quiet" }, caption),
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" },
        ...heads.map((head) => element("th", { scope: "col", role: "columnheader" }, head)))),
      element("tbody", { role: "rowgroup" }, ...rows.map((cells) => element("tr", { role: "row" },
        ...cells.map((cell, index) => element("td", { role: "cell", "data-head": heads[index] }, cell)))))));
  const bullets = (values, style) => element("ul", { class: "list" }, ...values.map((value) => element("li", { class: style || "" }, value)));
  const facts = (row) => {
    const made = element("dl", { class: "facts" });
    const values = {
      Change: element("span", {}, badge(get(row, "op")), " ", get(row, "reason")),
      Why: get(row, "detail"), State: element("span", {}, state(row), get(row, "since") ? ` since ${get(row, "since")} (${age(get(row, "since"))})` : ""),
      "Waits for": get(row, "waiting_for"), Version: moves(row, String), Cluster: get(row, "cluster"), Set: get(row, "set"),
      Variant: get(row, "variant"), Manifest: get(row, "manifest") && element("code", {}, get(row, "manifest")), "Pull request": pull(row),
      Files: get(row, "web_url") && link(get(row, "web_url"), "on main, with their history"),
    };
    if (!get(row, "op")) delete values.Change;
    if (!get(row, "phase")) delete values.State;
    for (const [name, value] of Object.entries(values)) if (value) made.append(element("dt", {}, name), element("dd", {}, value));
    return made;
  };
  // In the browser there is the pull request; in a shell one command answers each conflict.
  const answer = (row) => (records(row, "conflicts").some((cells) => !cells.at(-1).startsWith("answered by "))
    ? [element("p", { class: "next" }, "To answer in a shell: ", element("code", {}, `reconciler answer ${fullName(row)} --keep`), " or ",
      element("code", {}, "--take"), "; one of several by its field, before the option")] : []);
  const showPackage = (name) => {
    const index = packages.findIndex((row) => fullName(row) === name);
    const row = packages[index], body = $("package-body");
    $("package-title").textContent = row ? name : `No package is called ${name}`;
    if (!row) return body.replaceChildren(element("p", {}, element("a", { href: "#packages" }, "All packages")));
    const around = shown.includes(row) ? shown : packages, at = around.indexOf(row);
    const near = (step, label) => (around[at + step] ? element("a", { href: address(around[at + step]), rel: step > 0 ? "next" : "prev" }, label) : "");
    body.replaceChildren(
      element("p", { class: "crumbs" }, element("a", { href: `#packages${query()}` }, "All packages"), near(-1, "← Previous"), near(1, "Next →")),
      facts(row),
      ...(list(row, "risks").length ? part("Risks", bullets(list(row, "risks"), "danger")) : []),
      ...(row[AT.conflicts] ? part("Conflicts", plainTable("Conflicts", ["Where", "Before", "Upstream", "Local", "Local set by"], records(row, "conflicts")), ...answer(row)) : []),
      ...(list(row, "warnings").length ? part("Warnings", bullets(list(row, "warnings"))) : []),
      ...(list(row, "subpackages").length ? part("Sub-packages", bullets(list(row, "subpackages"))) : []),
      ...(row[AT.diff] >= 0 ? part("Difference from main", diffView(row[AT.diff])) : []),
      ...(row[AT.conditions] ? part("Conditions", plainTable("Conditions", ["Type", "Status", "Reason", "Message"], records(row, "conditions"))) : []),
      ...(get(row, "repository") ? [element("p", { class: "muted" }, "Where its fields come from: ", element("code", {}, `reconciler explain ${name}`),
        "; its revisions: ", element("code", {}, `reconciler explain ${name} --history`))] : []));
    return undefined;
  };

  // Routes
  let current = "";
  const update = () => {
    choose();
    if (current === "packages") showTable();
    if (current === "matrix") showMatrix();
  };
  const views = [...document.querySelectorAll("main > section")];
  const route = () => {
    const hash = location.hash.slice(1);
    const [view, parameters] = hash.split("?");
    const isPackage = hash.startsWith("/");
    const known = views.some((section) => section.id === view && view !== "package");
    current = isPackage ? "package" : known ? view : "overview";
    if (!isPackage && (current === "packages" || current === "matrix") && parameters !== undefined) {
      const given = new URLSearchParams(parameters);
      for (const key of Object.keys(filter)) filter[key] = given.get(key) || "";
      first = gridFirst = 0;
      showForm();
    }
    for (const section of views) section.classList.toggle("current", section.id === current);
    $("package").hidden = current !== "package";
    if (current === "matrix") $("matrix").querySelector("h2").after($("filters"));
    if (current === "packages") $("packages").querySelector("h2").after($("filters"));
    for (const link of document.querySelectorAll(".top nav a")) {
      if (link.hash === `#${isPackage ? "packages" : current}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    update();
    if (isPackage) {
      let name = hash.slice(1);
      try {
        name = name.split("/").map(decodeURIComponent).join("/");
      } catch { /* not of this page */ }
      showPackage(name);
      $("package-title").focus({ preventScroll: true });
    }
    scrollTo(0, 0);
  };
  const filtered = () => {
    first = gridFirst = 0;
    history.replaceState(null, "", `#${current === "matrix" ? "matrix" : "packages"}${query()}`);
    update();
  };
  $("search").addEventListener("input", () => {
    filter.q = $("search").value;
    filtered();
  });
  for (const facet of FACETS)
    if ($(facet)) $(facet).addEventListener("change", () => {
      filter[facet] = $(facet).value;
      filtered();
    });
  $("filters").addEventListener("reset", (event) => {
    event.preventDefault();
    for (const key of Object.keys(filter)) filter[key] = "";
    showForm();
    filtered();
    $("search").focus();
  });
  $("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    const link = document.querySelector("main > .current tbody a");
    if (link) location.hash = link.hash;
  });

  // Keys
  const step = (table, key) => {
    const rows = [...table.tBodies[0].rows];
    const cell = document.activeElement.closest("td, th"), row = cell && cell.closest("tbody tr");
    if (!row) return rows[0] && rows[0].querySelector("a");
    const column = cell.cellIndex, at = rows.indexOf(row);
    if (key === "ArrowDown" || key === "ArrowUp") {
      for (let next = at + (key === "ArrowDown" ? 1 : -1); rows[next]; next += key === "ArrowDown" ? 1 : -1) {
        const link = rows[next].cells[column].querySelector("a");
        if (link) return link;
      }
      return null;
    }
    const links = [...row.querySelectorAll("a")];
    return links[links.indexOf(document.activeElement) + (key === "ArrowRight" ? 1 : -1)];
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.matches("input, select, textarea");
    if (event.key === "/" && !field) {
      event.preventDefault();
      if (current !== "packages" && current !== "matrix") location.hash = `#packages${query()}`;
      setTimeout(() => $("search").focus());
    } else if (event.key === "Escape") {
      if (event.target === $("search")) $("search").blur();
      else if (current === "package") location.hash = `#packages${query()}`;
    } else if (event.key.startsWith("Arrow")) {
      const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
      const table = current === "packages" ? $("table") : current === "matrix" ? $("grid") : null;
      if (current === "package" && sideways && !event.target.closest(".scroll")) {
        const link = document.querySelector(`.crumbs a[rel=${event.key === "ArrowRight" ? "next" : "prev"}]`);
        if (link) location.hash = link.hash;
      } else if (table && table.tBodies[0] && (!field || (event.target === $("search") && event.key === "ArrowDown"))) {
        if (sideways && !event.target.closest("tbody")) return;
        const link = step(table, event.key);
        if (link) {
          event.preventDefault();
          link.focus();
        }
      }
    }
  });

  // On paper: the overview and the table as it is filtered, or the page of a package
  addEventListener("beforeprint", () => {
    if (current === "package") return;
    for (const section of views) section.classList.toggle("current", ["overview", "packages"].includes(section.id));
    first = 0;
    showTable(PRINTED_ROWS);
  });
  addEventListener("afterprint", route);

  root.classList.add("js");
  for (const facet of FACETS) if ($(facet) && facet !== "set") options(facet);
  if (kind === "status" || !packages.some((row) => get(row, "op"))) $("change").closest("label").hidden = true;
  addEventListener("hashchange", route);
  route();
})();
