"use strict";
(() => {
  // Sorting: each heading of a sortable table becomes a button.
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent.trim();
    if (text === "-" || text === "") return null;
    const number = cell.classList.contains("num") ? Number(text.replace(/[,% ]/g, "")) : NaN;
    return Number.isNaN(number) ? text : number;
  };
  // A browser lays hundreds of rows out too slowly to follow a click: the first, and a button for all.
  const MOST = 60;
  const cut = table => {
    let left = table.dataset.all ? Infinity : MOST;
    for (const row of table.tBodies[0].rows) row.hidden = row.classList.contains("miss") || left-- <= 0;
    table.nextElementSibling?.toggleAttribute("hidden", left >= 0);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    if (table.tBodies[0].rows.length > MOST) {
      const more = document.createElement("button");
      more.type = "button";
      more.textContent = `Show all ${table.tBodies[0].rows.length.toLocaleString("en")} rows`;
      more.addEventListener("click", () => {
        table.dataset.all = "yes";
        cut(table);
      });
      table.after(more);
    }
    cut(table);
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const first = head.classList.contains("num") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        heads.forEach(cell => cell.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const body = table.tBodies[0];
        const rows = [...body.rows].map(row => [value(row, column), row]);
        // What is not known stays last in either order.
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          if (typeof a === "number" && typeof b === "number") return sign * (a - b);
          return sign * String(a).localeCompare(String(b), "en", { numeric: true });
        });
        body.append(...rows.map(([, row]) => row));
        cut(table);
      });
    });
  }
  // Links: from a place to its instruction, from a block to its distribution.
  const targets = new Map();
  const target = (item, at) => {
    item.id = `to-${targets.size}`;
    targets.set(at, item);
  };
  document.querySelectorAll("table.annotated tr[data-at]").forEach(row => target(row, row.dataset.at));
  document.querySelectorAll("figure[data-block]").forEach(figure => target(figure, figure.dataset.block));
  const link = (item, title) => {
    const anchor = document.createElement("a");
    anchor.href = `#${item.id}`;
    anchor.title = title;
    anchor.addEventListener("click", () => {
      const folded = item.closest("details");
      if (folded) folded.open = true;
    });
    return anchor;
  };
  for (const row of document.querySelectorAll("table.sortable tbody tr")) {
    const places = [...row.querySelectorAll("td[data-at]")];
    for (const cell of places) {
      const item = targets.get(cell.dataset.at);
      if (!item) continue;
      const anchor = link(item, cell.title || "its instruction");
      anchor.append(...cell.childNodes);
      cell.append(anchor);
    }
    if (places.length !== 2 || !row.closest("#blocks")) continue;
    const ends = places.map(cell => cell.dataset.at).join(" ");
    const drawn = targets.get(ends);
    if (!drawn) continue;
    const anchor = link(drawn, "how its cycles are spread");
    anchor.textContent = "distribution";
    places[1].append(" ", anchor);
  }
  for (const row of document.querySelectorAll("tr[data-block]")) {
    const [item, cell] = [targets.get(row.dataset.block), row.cells[3]];
    if (!item || !cell) continue;
    const anchor = link(item, "how its cycles are spread");
    anchor.append(...cell.childNodes);
    cell.append(anchor);
  }
  for (const box of document.querySelectorAll("g[data-at]")) {
    const item = targets.get(box.dataset.at);
    if (!item) continue;
    const anchor = document.createElementNS(box.namespaceURI, "a");
    anchor.setAttribute("href", `#${item.id}`);
    box.replaceWith(anchor);
    anchor.append(box);
  }
  // Search: rows of every table.
  const tools = document.querySelector(".tools");
  if (!tools) return;
  tools.hidden = false;
  const input = tools.querySelector("input");
  const said = tools.querySelector("output");
  const searched = [...document.querySelectorAll("table.sortable tbody tr")];
  const texts = searched.map(item => item.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    searched.forEach((item, index) => {
      const miss = item.classList.toggle("miss", !words.every(word => texts[index].includes(word)));
      shown += !miss;
    });
    document.querySelectorAll("table.sortable").forEach(cut);
    said.textContent = words.length ? `${shown} of ${searched.length} rows` : "";
    document.dispatchEvent(new CustomEvent("searched", { detail: words }));
  });
  document.addEventListener("keydown", event => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape" && event.target === input) {
      input.value = "";
      input.dispatchEvent(new Event("input"));
    }
  });
})();
