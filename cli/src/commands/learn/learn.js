"use strict";
(() => {
  const by = id => document.getElementById(id);
  const make = (tag, text, set = {}) => Object.assign(document.createElement(tag), { textContent: text ?? "" }, set);
  const course = JSON.parse(by("course").textContent);
  let lesson, run, at, chosen, stops, asked;

  const begin = index => {
    lesson = course[index];
    [run, at, chosen, stops, asked] = [lesson.runs[0], 0, 0, new Set(), 0];
    by("title").textContent = `${lesson.name}: ${lesson.title}`;
    by("text").replaceChildren(...lesson.text.map(words => {
      const paragraph = make("p");
      paragraph.append(...words.split("`").map((part, code) => code % 2 ? make("code", part) : part));
      return paragraph;
    }));
    by("lessons").replaceChildren(...course.map((one, other) => {
      const link = make("a", one.name, { href: "#" + one.name });
      if (other === index) link.setAttribute("aria-current", "true");
      link.addEventListener("click", event => { event.preventDefault(); begin(other); });
      const item = make("li");
      item.append(link);
      return item;
    }));
    const cpus = lesson.runs.filter(one => !one.toggled).map(one => make("option", one.cpu, { value: one.cpu }));
    by("cpu").replaceChildren(...cpus);
    by("code").replaceChildren(...lesson.code.map(([address, name, text, source], line) => {
      const row = make("tr");
      row.append(...["", address, name && name + ":", text, source].map(cell => make("td", cell)));
      row.addEventListener("click", () => { chosen = line; toggleStop(); });
      return row;
    }));
    ask();
    show();
  };

  // The ring at a moment is what all moments up to it left.
  const ring = () => {
    const slots = Array.from({ length: run.slots }, () => ["-", "-", "-", ""]);
    for (const moment of run.moments.slice(0, at + 1))
      for (const [slot, ...cells] of moment.slots) slots[slot] = cells.map(text => lesson.texts[text]);
    return slots;
  };

  const show = () => {
    const moment = run.moments[at];
    by("progress").textContent = `Program, step ${at} of ${run.moments.length - 1}`;
    by("cpu").value = run.cpu;
    by("lacks").textContent = run.lacks;
    [...by("code").rows].forEach((row, line) => {
      row.className = (line === moment.next ? "next " : "") + (line === chosen ? "chosen" : "");
      row.cells[0].textContent = stops.has(line) ? "●" : "";
    });
    by("ring").replaceChildren(...ring().map((cells, slot) => {
      const row = make("tr");
      row.className = (slot === moment.newest ? "newest " : "") + (moment.marked.includes(slot) ? "marked" : "");
      row.append(...[slot, ...cells].map(cell => make("td", cell)));
      return row;
    }));
    by("happened").textContent = lesson.texts[moment.happened];
    by("controls").replaceChildren(...run.controls.map(({ name, fields }, register) => {
      const value = BigInt(lesson.texts[moment.values[register]]);
      const before = BigInt(lesson.texts[(run.moments[at - 1] ?? moment).values[register]]);
      const line = make("div", `${name} = 0x${value.toString(16)} `, { className: "register" });
      for (const [field, bit, set, clear] of fields) {
        const on = value >> BigInt(bit) & 1n;
        const button = make("button", `${on} ${field}`, { type: "button", title: on ? set : clear });
        button.setAttribute("aria-pressed", String(on === 1n));
        button.classList.toggle("changed", (value ^ before) >> BigInt(bit) & 1n);
        const other = toggled(field);
        button.disabled = !other;
        button.addEventListener("click", () => { [run, at] = [other, 0]; show(); focus(field); });
        line.append(button);
      }
      return line;
    }));
    const row = by("code").rows[moment.next];
    row?.scrollIntoView({ block: "nearest" });
    by("ring").rows[moment.newest]?.scrollIntoView({ block: "nearest" });
  };

  // Toggling a bit plays the lesson from its start, with that bit as it is then.
  const toggled = field => {
    if (run.toggled === field) return lesson.runs[0];
    if (run.toggled || run.cpu !== lesson.runs[0].cpu) return undefined;
    return lesson.runs.find(one => one.toggled === field);
  };
  const focus = field => [...by("controls").querySelectorAll("button")]
    .find(button => button.textContent.endsWith(" " + field))?.focus();

  const step = by => {
    at = Math.max(0, Math.min(run.moments.length - 1, at + by));
    chosen = run.moments[at].next ?? chosen;
    show();
  };
  const go = () => {
    do step(1); while (at < run.moments.length - 1 && !stops.has(run.moments[at].next));
  };
  const change = to => {
    const cpus = lesson.runs.filter(one => !one.toggled);
    const now = cpus.findIndex(one => one.cpu === run.cpu);
    run = cpus[(now + to + cpus.length) % cpus.length];
    at = Math.min(at, run.moments.length - 1);
    show();
  };
  const toggleStop = () => {
    if (!stops.delete(chosen)) stops.add(chosen);
    show();
  };
  const choose = by => {
    chosen = Math.max(0, Math.min(lesson.code.length - 1, chosen + by));
    show();
    document.querySelector("#code tr.chosen")?.scrollIntoView({ block: "nearest" });
  };
  const turn = by => {
    const index = course.indexOf(lesson) + by;
    if (index >= 0 && index < course.length) begin(index);
  };

  const ask = () => {
    const question = lesson.questions[asked];
    by("question").hidden = !lesson.questions.length;
    by("ask").textContent = question ? `Question ${asked + 1}: ${question.ask}` : "";
    by("answer").value = "";
    if (asked === 0) by("verdict").textContent = "";
  };
  by("question").addEventListener("submit", event => {
    event.preventDefault();
    const question = lesson.questions[asked];
    const typed = by("answer").value.trim();
    if (!question || !typed) return;
    if (!question.answers.includes(typed)) {
      by("verdict").textContent = `${typed}: the ring says no.`;
      return;
    }
    by("verdict").textContent = `${typed}: right. ${question.why}`;
    if (asked + 1 < lesson.questions.length) { asked += 1; ask(); }
  });
  by("cpu").addEventListener("change", event => {
    run = lesson.runs.find(one => !one.toggled && one.cpu === event.target.value);
    at = Math.min(at, run.moments.length - 1);
    show();
  });

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const onButton = event.target.tagName === "BUTTON" || event.target.tagName === "A";
    const keys = {
      ArrowRight: () => step(1), s: () => step(1), " ": () => step(1),
      ArrowLeft: () => step(-1), b: () => step(-1), r: go,
      Home: () => step(-at), "0": () => step(-at), End: () => step(run.moments.length),
      ArrowUp: () => choose(-1), ArrowDown: () => choose(1), p: toggleStop,
      c: () => change(1), C: () => change(-1), n: () => turn(1), N: () => turn(-1),
      a: () => by("answer").focus(),
    };
    if (!keys[event.key] || onButton && event.key === " ") return;
    event.preventDefault();
    keys[event.key]();
  });

  const named = course.findIndex(one => "#" + one.name === location.hash);
  begin(Math.max(0, named));
})();
