"use strict";
(() => {
  const all = (of, what) => [...of.querySelectorAll(what)];
  const icicle = document.querySelector(".icicle");
  const frames = all(icicle, ".frame");
  const functions = all(document, ".function");
  const figures = all(document, "#cycles figure");
  const tables = all(document, "section.table");
  const tabs = all(document, "nav a");
  const show = (items, one) => items.forEach(item => { item.hidden = item !== one; });
  const select = (items, one) => items.forEach(item => {
    item.setAttribute("aria-selected", item === one);
    item.tabIndex = item === one ? 0 : -1;
  });
  // One function, the cycles of one block, one table.
  const figureOf = row => figures.find(figure => figure.dataset.block === row.dataset.block);
  const openFunction = item => {
    show(functions, item);
    // The first box of the graph.
    const [graph, box] = [item.querySelector(".cfg-figure"), item.querySelector("g[data-at]")];
    if (box) graph.scrollLeft += box.getBoundingClientRect().left - graph.getBoundingClientRect().left - graph.clientWidth / 3;
    const rows = new Set(all(item, "tr[data-block]").map(row => row.dataset.block));
    show(figures, figures.find(figure => rows.has(figure.dataset.block)));
  };
  const openTable = item => {
    show(tables, item);
    select(tabs, tabs.find(tab => tab.getAttribute("href") === `#${item.id}`));
  };
  const mark = row => {
    all(document, ".here").forEach(item => item.classList.remove("here"));
    row.classList.add("here");
    all(row.closest(".function"), "g[data-at]").forEach(box => box.classList.toggle("here", box.dataset.at === row.dataset.at));
    // The block that ends next.
    for (let next = row; next; next = next.nextElementSibling) {
      const drawn = next.dataset.block && figureOf(next);
      if (drawn) { show(figures, drawn); break; }
    }
  };
  const open = id => {
    const item = document.getElementById(id);
    if (!item) return false;
    const inside = item.closest(".function");
    if (inside && inside.hidden) openFunction(inside);
    if (item.matches("figure")) show(figures, item);
    const table = item.closest("section.table");
    if (table) openTable(table);
    if (item.matches("tr")) mark(item);
    item.scrollIntoView({ block: "nearest" });
    return true;
  };
  document.addEventListener("click", event => {
    const link = event.target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const hash = link.getAttribute("href");
    if (!open(hash.slice(1))) return;
    event.preventDefault();
    // A page without an address has no history.
    try { if (location.hash !== hash) history.pushState(null, "", hash); } catch { return; }
  });
  window.addEventListener("popstate", () => open(location.hash.slice(1)));
  // The picture: a click or Enter zooms, arrows walk.
  const number = (frame, name) => Number(frame.style.getPropertyValue(name));
  const boxes = frames.map(frame => ({ frame, x: number(frame, "--x"), w: number(frame, "--w"), level: number(frame, "--l") }));
  const zoom = box => {
    icicle.style.setProperty("--x0", box.x);
    icicle.style.setProperty("--k", 1 / (box.w || 1));
    for (const { frame, x, w } of boxes) frame.hidden = x + w <= box.x + 1e-6 || x >= box.x + box.w - 1e-6;
    select(frames, box.frame);
  };
  const focus = box => {
    if (!box) return;
    if (box.frame.hidden) zoom(box);
    select(frames, box.frame);
    box.frame.focus();
  };
  icicle.addEventListener("click", event => {
    const at = frames.indexOf(event.target.closest(".frame"));
    if (at >= 0) zoom(boxes[at]);
  });
  icicle.addEventListener("keydown", event => {
    const at = frames.indexOf(event.target);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const { level } = boxes[at];
    const before = boxes.slice(0, at).reverse();
    const after = boxes.slice(at + 1);
    const to = {
      ArrowUp: () => before.find(box => box.level < level),
      ArrowDown: () => boxes[at + 1]?.level > level ? boxes[at + 1] : null,
      ArrowLeft: () => before.find(box => box.level === level),
      ArrowRight: () => after.find(box => box.level === level),
      Home: () => boxes[0],
      Escape: () => { zoom(boxes[0]); return boxes[at]; },
      Enter: () => { frames[at].click(); return boxes[at]; },
      " ": () => { frames[at].click(); return boxes[at]; },
    }[event.key];
    if (!to) return;
    event.preventDefault();
    focus(to());
  });
  // Tabs.
  const bar = document.querySelector("nav ul");
  bar.setAttribute("role", "tablist");
  tabs.forEach((tab, at) => {
    tab.setAttribute("role", "tab");
    tab.parentElement.setAttribute("role", "presentation");
    tables[at].setAttribute("role", "tabpanel");
    tab.dataset.name = tab.textContent;
  });
  bar.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    next.click();
    next.focus();
  });
  // A search marks boxes, and counts the rows of each table.
  const names = frames.map(frame => frame.title.split("\n")[0].toLowerCase());
  document.addEventListener("searched", event => {
    const words = event.detail;
    icicle.classList.toggle("searching", words.length > 0);
    frames.forEach((frame, at) => frame.classList.toggle("match", words.every(word => names[at].includes(word))));
    tabs.forEach((tab, at) => {
      const rows = all(tables[at], "tbody tr:not(.miss)").length;
      tab.textContent = words.length ? `${tab.dataset.name} (${rows})` : tab.dataset.name;
    });
  });
  document.querySelector("#search").addEventListener("keydown", event => {
    if (event.key === "Enter") focus(boxes.find(({ frame }) => frame.classList.contains("match") && frame.title !== frames[0].title));
  });
  const first = document.querySelector(".lead a[href]");
  if (first) openFunction(document.querySelector(first.getAttribute("href")));
  else if (functions.length) openFunction(functions[0]);
  else show(figures, figures[0]);
  if (tables.length) openTable(tables[0]);
  select(frames, frames[0]);
  open(location.hash.slice(1));
})();
