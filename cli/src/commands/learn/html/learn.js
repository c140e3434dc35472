"use strict";
(() => {
  const by = id => document.getElementById(id);
  const make = (tag, text, set = {}) => Object.assign(document.createElement(tag), { textContent: text ?? "" }, set);
  const course = JSON.parse(by("course").textContent);
  // Words with code between backticks.
  const marked = words => words.split("`").map((part, code) => code % 2 ? make("code", part) : part);

  // A moment: a run (a CPU), a state of it (a node), the step or refusal that led there, the slots that changed.
  let lesson, past, chosen, stops, asked;
  const now = () => past[past.length - 1];
  const node = moment => {
    const [ring, newest, values, next, toggles = []] = lesson.states.nodes[moment.node];
    return { ring, newest, values, next, toggles };
  };
  const moment = (run, node, done, told = "", changed = []) => ({ run, node, done, told, changed });
  const after = ({ run, done }, [node, told, marks]) =>
    moment(run, node, done + 1, lesson.states.texts[told], lesson.states.marks[marks]);

  const begin = index => {
    lesson = course[index];
    [past, chosen, stops, asked] = [[moment(0, lesson.runs[0].first, 0)], 0, new Set(), 0];
    by("title").textContent = `${lesson.name}: ${lesson.title}`;
    by("text").replaceChildren(...lesson.text.map(words => {
      const paragraph = make("p");
      paragraph.append(...marked(words));
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
    by("cpu").replaceChildren(...lesson.runs.map((one, run) => make("option", one.cpu, { value: run })));
    by("code").replaceChildren(...lesson.code.map(([address, name, text, source], line) => {
      const row = make("tr");
      row.append(...["", address, name && name + ":", text, source].map(cell => make("td", cell)));
      row.addEventListener("click", () => { chosen = line; toggleStop(); });
      return row;
    }));
    ask();
    show();
  };

  const values = moment => lesson.states.values[node(moment).values].map(BigInt);

  const show = () => {
    const { run, done, told, changed } = now();
    const { ring, newest, toggles } = node(now());
    const { states, next } = lesson;
    by("progress").textContent = `Program, step ${done} of ${next.length - 1}`;
    by("cpu").value = run;
    by("lacks").textContent = lesson.runs[run].lacks;
    [...by("code").rows].forEach((row, line) => {
      row.className = (line === next[done] ? "next " : "") + (line === chosen ? "chosen" : "");
      row.cells[0].textContent = stops.has(line) ? "●" : "";
    });
    by("ring").replaceChildren(...states.rings[ring].map((cells, slot) => {
      const row = make("tr");
      row.className = (slot === newest ? "newest " : "") + (changed.includes(slot) ? "marked" : "");
      row.append(make("td", slot), ...states.slots[cells].map(text => make("td", states.texts[text])));
      return row;
    }));
    draw(states.rings[ring].map(cells => states.texts[states.slots[cells][3]] !== ""), newest, changed);
    by("happened").textContent = told;
    const before = past[past.length - 2];
    const old = before && before.run === run ? values(before) : values(now());
    let number = 0;
    by("controls").replaceChildren(...lesson.runs[run].controls.map(({ name, fields }, register) => {
      const value = values(now())[register];
      const line = make("div", `${name} = 0x${value.toString(16)} `, { className: "register" });
      for (const [field, bit, set, clear] of fields) {
        const on = value >> BigInt(bit) & 1n;
        const button = make("button", `${on} ${field}`, { type: "button", title: on ? set : clear });
        button.setAttribute("aria-pressed", String(on === 1n));
        button.classList.toggle("changed", (value ^ old[register]) >> BigInt(bit) & 1n);
        const mine = number++;
        const toggle = toggles.find(([one]) => one === mine);
        button.disabled = !toggle;
        button.addEventListener("click", () => { toggled(toggle[1]); focus(field); });
        line.append(button);
      }
      return line;
    }));
    by("code").rows[next[done]]?.scrollIntoView({ block: "nearest" });
    by("ring").rows[newest]?.scrollIntoView({ block: "nearest" });
  };

  // The slots clockwise from the top, and TOS as the hand that points at the newest.
  const draw = (recorded, newest, changed) => {
    const part = (tag, set, text = "") => {
      const item = document.createElementNS("http://www.w3.org/2000/svg", tag);
      Object.entries(set).forEach(([name, value]) => item.setAttribute(name, value));
      item.textContent = text;
      return item;
    };
    const at = (slot, radius) => {
      const angle = 2 * Math.PI * (slot / recorded.length) - Math.PI / 2;
      return [radius * Math.cos(angle), radius * Math.sin(angle)];
    };
    const [x2, y2] = at(newest, 66);
    by("dial").replaceChildren(part("line", { x1: 0, y1: 0, x2, y2 }), ...recorded.flatMap((full, slot) => {
      const [[cx, cy], [x, y]] = [at(slot, 76), at(slot, 93)];
      const look = (full ? "full " : "") + (changed.includes(slot) ? "marked " : "") + (slot === newest ? "newest" : "");
      return [part("circle", { cx, cy, r: 5.5, class: look }), part("text", { x, y }, slot)];
    }));
    by("dial").setAttribute("aria-label", `${recorded.length} slots; the newest record is in slot ${newest}`);
  };

  const toggled = to => {
    const { run, node, done } = now();
    past.push(to < 0 ? moment(run, node, done, lesson.states.texts[-1 - to]) : moment(run, to, done));
    show();
  };
  const focus = field => [...by("controls").querySelectorAll("button")]
    .find(button => button.textContent.endsWith(" " + field))?.focus();

  const next = () => {
    const to = node(now()).next;
    if (to) past.push(after(now(), to));
    return to;
  };
  const follow = () => {
    chosen = lesson.next[now().done] ?? chosen;
    show();
  };
  const step = () => { next(); follow(); };
  const go = (stop = stops) => {
    while (next() && !stop.has(lesson.next[now().done]));
    follow();
  };
  const back = to => {
    past.length = Math.max(1, to);
    follow();
  };
  // Another CPU has gone through the same steps, with the registers as they were set at first.
  const change = run => {
    let to = moment(run, lesson.runs[run].first, 0);
    while (to.done < now().done) to = after(to, node(to).next);
    past.push({ ...to, told: "", changed: [] });
    show();
  };
  const turnCpu = by => change((now().run + by + lesson.runs.length) % lesson.runs.length);
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
    by("ask").replaceChildren(...marked(question ? `Question ${asked + 1}: ${question.ask}` : ""));
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
    by("verdict").replaceChildren(`${typed}: right. `, ...marked(question.why));
    if (asked + 1 < lesson.questions.length) { asked += 1; ask(); }
  });
  by("cpu").addEventListener("change", event => change(Number(event.target.value)));

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const onButton = event.target.tagName === "BUTTON" || event.target.tagName === "A";
    const keys = {
      ArrowRight: step, s: step, " ": step,
      ArrowLeft: () => back(past.length - 1), b: () => back(past.length - 1), r: () => go(),
      Home: () => back(1), "0": () => back(1), End: () => go(new Set()),
      ArrowUp: () => choose(-1), ArrowDown: () => choose(1), p: toggleStop,
      c: () => turnCpu(1), C: () => turnCpu(-1), n: () => turn(1), N: () => turn(-1),
      a: () => by("answer").focus(),
    };
    if (!keys[event.key] || onButton && event.key === " ") return;
    event.preventDefault();
    keys[event.key]();
  });

  const named = course.findIndex(one => "#" + one.name === location.hash);
  begin(Math.max(0, named));
})();
