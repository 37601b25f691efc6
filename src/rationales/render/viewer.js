/* The viewer of explanations: one script for files, notebooks and the live page.

   Rationales.view(root, data, host = null) → {update(data), item(), selection()}

   `data` is page data: {items: [{title, explanation, units, gold?}, …]}, where `explanation` is schema 2
   (src/rationales/schema.json). `host` is given by the live page: {score({item, target, keep}), search({item, target,
   within})}; with it, "Try it yourself" is shown. What is selected is one object, `state`; it is kept in the hash of the
   address, and `paint` shows it. All texts become text nodes: nothing of the data is ever read as HTML.

   Parts: elements · texts · rationales · text pane · steps · matrix · trial · downloads · the viewer. */
"use strict";

globalThis.Rationales = (() => {
  // ---------------------------------------------------------------------------------------------------- elements

  const SVG = "http://www.w3.org/2000/svg";
  let lastId = 0;

  /** An element with these attributes; a function is a listener, a string child becomes a text node. */
  function el(tag, attributes = {}, ...children) {
    const node = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") node.addEventListener(name, value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function button(label, click, attributes = {}) {
    return el("button", { type: "button", click, ...attributes }, label);
  }

  /** Buttons of which one is pressed: `choices` maps values to labels. */
  function switchOf(label, choices, choose) {
    const buttons = Object.entries(choices).map(([value, text]) =>
      button(text, () => choose(value), { "data-value": value }));
    const node = el("div", { class: "switch", role: "group", "aria-label": label }, ...buttons);
    node.press = (value) => buttons.forEach((each) => each.setAttribute("aria-pressed", each.dataset.value === value));
    return node;
  }

  /** One member of a group is in the tab order; arrow keys move among all, Enter and Space press. */
  function roving(container, selector, press) {
    const members = () => [...container.querySelectorAll(selector)];
    container.addEventListener("keydown", (event) => {
      const from = event.target.closest(selector);
      if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        press(from, event);
        return;
      }
      const all = members();
      const at = all.indexOf(from);
      const along = getComputedStyle(from).direction === "rtl" ? -1 : 1;
      const next = {
        ArrowRight: () => all[at + along],
        ArrowLeft: () => all[at - along],
        ArrowDown: () => nearest(all, from, 1),
        ArrowUp: () => nearest(all, from, -1),
        Home: () => all[0],
        End: () => all[all.length - 1],
      }[event.key];
      if (!next) return;
      event.preventDefault();
      next()?.focus();
    });
    container.addEventListener("focusin", (event) => {
      const member = event.target.closest(selector);
      if (member) setEntry(member);
    });
    let entry = null;
    function setEntry(member) {
      entry?.setAttribute("tabindex", "-1");
      entry = member;
      entry?.setAttribute("tabindex", "0");
    }
    return { setEntry, first: () => setEntry(container.querySelector(selector)) };
  }

  /** The member in the next line (down: 1) or the line before (-1) that is closest to this one. */
  function nearest(all, from, down) {
    const here = from.getBoundingClientRect();
    let best = null;
    let least = Infinity;
    for (const each of all) {
      const there = each.getBoundingClientRect();
      const lines = down * (there.top - here.top);
      const distance = lines * 1000 + Math.abs(there.left + there.width / 2 - here.left - here.width / 2);
      if (lines > here.height / 3 && distance < least) [best, least] = [each, distance];
    }
    return best;
  }

  // ------------------------------------------------------------------------------------------------------- texts

  const LONGEST = 60; // characters of a token that are shown
  const SIGNS = { "\n": "⏎", "\r": "␍", "\t": "⇥" };
  // Control characters, halves of characters, private ones, and format characters (which turn the direction of text)
  // except the two joiners that scripts and emoji need.
  const UNSEEN = /[\p{Cc}\p{Cs}\p{Co}\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{Cf}/gu;

  /** The text on one line, with signs for what cannot be seen. */
  function visible(text) {
    return text.replace(UNSEEN, (c) =>
      SIGNS[c] ?? `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  }

  function cut(text, most = LONGEST) {
    const characters = text.length > most ? [...text] : [];
    return characters.length > most ? characters.slice(0, most - 1).join("") + "…" : text;
  }

  /** A token on its own: without the space before it, never empty. */
  function label(text, most = LONGEST) {
    return cut(visible(text ?? "").trim(), most) || (text ? "␣" : "·");
  }

  /** A text in quotation marks that does not turn the direction of what is around it. */
  function quote(text, most = 120) {
    return el("span", { class: "quote" }, "“", el("bdi", {}, label(text, most)), "”");
  }

  /** The text of these tokens in text order, with an ellipsis for each gap; an arrow parts source and target. */
  function joined(tokens, indices) {
    let text = "";
    let before = null;
    for (const i of [...indices].sort((a, b) => a - b)) {
      if (before !== null && tokens[before].side !== tokens[i].side) text += " → ";
      else if (before !== null && i !== before + 1) text += /^\s/.test(tokens[i].text) ? " …" : " … ";
      text += tokens[i].text;
      before = i;
    }
    return text;
  }

  function counted(number, what) {
    return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
  }

  /** null stands for the log-probability −∞. */
  const probability = (logprob) => (logprob === null ? 0 : Math.exp(logprob));

  function percent(p) {
    if (p > 0 && p < 1e-5) return "< 0.001 %";
    return `${p < 0.0995 ? Number((100 * p).toPrecision(3)) : (100 * p).toFixed(1)} %`;
  }

  // -------------------------------------------------------------------------------------------------- rationales

  /** What was added, in order: a list of token indices each. With a step: only what was added up to it. */
  function additions(rationale, step = null) {
    if (step !== null && step < (rationale.steps ?? []).length)
      return rationale.steps.slice(0, step).filter((s) => s.index !== null).map((s) => s.unit ?? [s.index]);
    const units = rationale.units ?? [];
    const grouped = new Set(units.flat());
    return [...units, ...rationale.indices.filter((i) => !grouped.has(i)).map((i) => [i])];
  }

  /** How tokens are marked for a rationale: index → {kept, order}. Others of a kept word or sentence are not kept. */
  function marksOf(reading, rationale, step, unit) {
    const marks = new Map();
    const numbered = new Set();
    additions(rationale, step).forEach((added, place) => {
      for (const i of added) {
        const group = reading.groupOf(unit, i);
        const first = !numbered.has(group) && (unit !== "token" || i === added[0]);
        if (first) numbered.add(group);
        marks.set(i, { kept: true, order: first ? place + 1 : null });
        for (const j of group) if (j < rationale.target && !marks.has(j)) marks.set(j, { kept: false, order: null });
      }
    });
    return marks;
  }

  /** What the viewer asks about an item, prepared once. */
  function read(item) {
    const { tokens, rationales, options = {} } = item.explanation;
    const byTarget = new Map(); // each token of a target → its rationale
    for (const rationale of rationales)
      for (let k = 0; k < (rationale.target_length ?? 1); k++) byTarget.set(rationale.target + k, rationale);
    const groups = { token: tokens.map((_, i) => [i]) };
    for (const unit of ["word", "sentence"]) {
      groups[unit] = [...groups.token];
      for (const group of item.units?.[unit] ?? []) for (const i of group) groups[unit][i] = group;
    }
    return {
      item, tokens, rationales, options, byTarget,
      explanation: item.explanation,
      groupOf: (unit, i) => groups[unit][i],
      /** The groups of the tokens that may be kept for a target: only their tokens before it. */
      context(unit, target) {
        const found = new Map();
        for (let i = 0; i < target; i++) {
          if (tokens[i].pinned) continue;
          const group = groups[unit][i];
          if (found.has(group)) found.get(group).push(i);
          else found.set(group, [i]);
        }
        return [...found.values()];
      },
      text: (indices) => indices.map((i) => tokens[i].text).join(""),
    };
  }

  function sameTokens(one, other) {
    const [a, b] = [one.explanation.tokens, other.explanation.tokens];
    return a.length === b.length && a.every((token, i) => token.text === b[i].text && token.id === b[i].id);
  }

  /** The plain words about a rationale: a list of paragraphs, each a list of strings and elements. */
  function inWords(reading, rationale) {
    const { tokens, explanation, options } = reading;
    const context = tokens.slice(0, rationale.target).filter((token) => !token.pinned).length;
    const size = rationale.indices.length;
    const target = quote(rationale.target_text ?? tokens[rationale.target].text);
    const last = rationale.steps?.[rationale.steps.length - 1];
    const kept = size ? quote(joined(tokens, rationale.indices)) : "no token of the context";
    const share = `${size.toLocaleString("en")} of ${counted(context, "context token")}`;
    const about = [];

    const first = [...(size ? ["Given only ", kept, ` (${share})`] : [`Given no token of the context (${share})`]), ", "];
    const criterion = options.criterion && options.criterion !== "argmax" ? options.criterion : null;
    if (options.instead_of !== undefined && rationale.sufficient)
      first.push(target, " is more likely than ", quote(options.instead_of), ".");
    else if (rationale.sufficient && criterion) first.push(target, ` meets the criterion ${criterion}.`);
    else if (rationale.sufficient && rationale.target_length > 1)
      first.push("each token of ", target, " is the model’s most likely next token.");
    else if (rationale.sufficient) first.push(target, " is the model’s most likely next token.");
    else {
      if (options.instead_of !== undefined) first.push(target, " is not more likely than ", quote(options.instead_of));
      else if (criterion) first.push(target, ` does not meet the criterion ${criterion}`);
      else first.push(target, " is not the model’s most likely next token");
      if (last?.prediction_text && last.prediction_id !== rationale.target_id && !criterion)
        first.push("; the model predicts ", quote(last.prediction_text));
      first.push(". ", {
        "max-size": "The search stopped at its maximum size.",
        budget: "The search stopped at its limit of evaluations.",
      }[rationale.stopped] ?? "The search added all that it could.");
    }
    about.push(first);

    const more = [];
    if (rationale.optimal) more.push("No smaller subset is sufficient. ");
    else if (rationale.minimal)
      more.push("Nothing can be dropped from it; a smaller rationale of other tokens may exist. ");
    else if (rationale.minimal === false) more.push("It is not minimal: something can be dropped from it. ");
    else if (rationale.sufficient) more.push("Whether something can be dropped from it was not checked. ");
    const full = rationale.full_context;
    if (rationale.predicted === true) {
      more.push("Given the full context, it is the model’s first choice");
      more.push(full ? ` with ${percent(probability(full.target_logprob))}.` : ".");
    } else if (rationale.predicted === false) {
      more.push("Given the full context, it is not the model’s first choice");
      if (full) more.push(`: it has ${percent(probability(full.target_logprob))}`);
      if (full?.prediction_text) more.push(", and the first choice is ", quote(full.prediction_text));
      more.push(".");
    }
    about.push(more);

    const how = {
      sparse: "kept tokens alone, at their original positions",
      masked: "the full context under a mask",
      "black-box": "the model sees only the kept text",
    }[explanation.evaluation];
    about.push([`${counted(rationale.evaluations, "subset")} scored, by ${explanation.evaluation} evaluation`
      + `${how ? ` (${how})` : ""}.`]);
    return about;
  }

  /** Short marks of the verdict, for eyes that skim. */
  function verdicts(rationale) {
    const marks = [rationale.sufficient ? ["yes", "✓ sufficient"] : ["no", "✗ not sufficient"]];
    if (rationale.optimal) marks.push(["", "optimal"]);
    else if (rationale.minimal) marks.push(["", "minimal"]);
    if (rationale.predicted === false) marks.push(["", "not predicted"]);
    if (rationale.stopped) marks.push(["", `stopped: ${rationale.stopped}`]);
    return el("p", { class: "verdicts" },
      ...marks.map(([kind, text]) => el("span", { class: `verdict ${kind}` }, text)));
  }

  // --------------------------------------------------------------------------------------------------- text pane

  /** The spans of these tokens, in running text; those that `press` accepts can be pressed. */
  function writeText(container, tokens, spans) {
    for (const token of tokens) {
      const parts = /^( *)([^]*?)(\n*)$/.exec(token.text);
      let [, before, core, breaks] = parts;
      if (!core && !breaks) [before, core] = ["", "␣".repeat(before.length)]; // a token of spaces only
      const shown = cut(visible(core + breaks)) || "·";
      const span = el("span", { class: "token", "data-i": token.index }, shown);
      if (!token.text.trim()) span.classList.add("blank");
      if (token.pinned) span.classList.add("pinned");
      if (shown.length < visible(core + breaks).length) span.title = visible(token.text);
      spans[token.index] = span;
      container.append(before, span, breaks);
    }
  }

  const MARKS = ["kept", "part", "kept2", "part2", "target", "target2", "seen", "seen-target"];

  /** One text with its marks: `choose(target, event)` and `preview(target | null)` are called for its targets. */
  function textPane(choose, preview) {
    const node = el("div", { class: "running" });
    const spans = [];
    const marked = new Set();
    const hovered = new Set();
    const keys = roving(node, "[role=button]", (span, event) => choose(Number(span.dataset.i), event));
    const pressable = (event) => event.target.closest?.("[role=button], .token.more");
    let shownTokens = null;

    node.addEventListener("click", (event) => {
      const span = pressable(event);
      if (span) choose(Number(span.dataset.i), event);
    });
    node.addEventListener("mouseover", (event) => {
      const span = pressable(event);
      preview(span ? Number(span.dataset.i) : null);
    });
    node.addEventListener("mouseleave", () => preview(null));

    /** Write the text, unless it is there already, and make its targets pressable. */
    function write(reading) {
      const { tokens, byTarget } = reading;
      const key = JSON.stringify(tokens);
      if (key !== shownTokens) {
        shownTokens = key;
        marked.clear();
        hovered.clear();
        spans.length = 0;
        node.replaceChildren();
        const sides = tokens.some((token) => token.side);
        for (const side of sides ? ["source", "target"] : [null]) {
          const name = { source: "Source", target: "Translation" }[side] ?? "Text";
          const part = el("div", { class: "part-text", dir: "auto", role: "group", "aria-label": name });
          writeText(part, tokens.filter((token) => !side || token.side === side), spans);
          if (side) node.append(el("h3", { class: "caption" }, name));
          node.append(part);
        }
      }
      spans.forEach((span, i) => {
        const rationale = byTarget.get(i);
        const head = rationale?.target === i;
        span.classList.toggle("more", Boolean(rationale) && !head);
        span.classList.toggle("bad", Boolean(rationale) && !rationale.sufficient);
        if (head && !span.hasAttribute("role")) {
          span.setAttribute("role", "button");
          span.setAttribute("aria-pressed", "false");
          span.setAttribute("tabindex", "-1");
        } else if (!head && span.hasAttribute("role"))
          for (const name of ["role", "aria-pressed", "tabindex"]) span.removeAttribute(name);
      });
      const free = tokens.filter((token) => !token.pinned).length;
      node.classList.toggle("few", byTarget.size < 0.6 * free); // then targets are underlined
      if (!node.querySelector("[tabindex='0']")) keys.first();
    }

    function clear() {
      for (const span of marked) {
        span.classList.remove(...MARKS);
        delete span.dataset.order;
        delete span.dataset.order2;
        if (span.hasAttribute("role")) span.setAttribute("aria-pressed", "false");
      }
      marked.clear();
    }

    /** Mark a rationale: as the first (selected) or the second one (pinned). */
    function mark(reading, rationale, step, unit, second) {
      const suffix = second ? "2" : "";
      for (const [i, { kept, order }] of marksOf(reading, rationale, step, unit)) {
        spans[i].classList.add((kept ? "kept" : "part") + suffix);
        if (order) spans[i].dataset[`order${suffix}`] = order;
        marked.add(spans[i]);
      }
      for (let k = 0; k < (rationale.target_length ?? 1); k++) {
        spans[rationale.target + k].classList.add(`target${suffix}`);
        marked.add(spans[rationale.target + k]);
      }
      spans[rationale.target].setAttribute("aria-pressed", "true");
      if (!second) keys.setEntry(spans[rationale.target]);
    }

    /** Outline what would be marked for a target under the pointer; nothing for null. */
    function hover(reading, rationale, unit) {
      for (const span of hovered) span.classList.remove("seen", "seen-target");
      hovered.clear();
      if (!rationale) return;
      for (const [i, { kept }] of marksOf(reading, rationale, null, unit)) if (kept) put(i, "seen");
      for (let k = 0; k < (rationale.target_length ?? 1); k++) put(rationale.target + k, "seen-target");
      function put(i, name) {
        spans[i].classList.add(name);
        hovered.add(spans[i]);
      }
    }

    return { node, spans, write, clear, mark, hover, focus: (target) => spans[target]?.focus() };
  }

  // ------------------------------------------------------------------------------------------------------- steps

  const TOPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

  /** The target's probability after each step, as a curve; a dashed line is that given the full context. */
  function curve(rationale, step, contrast) {
    const steps = rationale.steps;
    const [width, height, left, right, top, bottom] = [340, 150, 44, 12, 16, 22];
    const values = steps.map((each) => probability(each.target_logprob));
    const against = contrast === undefined ? [] : steps.map((each) => probability(each.contrast_logprob ?? null));
    const full = rationale.full_context ? probability(rationale.full_context.target_logprob) : null;
    const most = Math.max(...values, ...against, full ?? 0);
    const high = TOPS.find((each) => each >= most) ?? 1;
    const x = (k) => left + (steps.length < 2 ? 0.5 : k / (steps.length - 1)) * (width - left - right);
    const y = (p) => height - bottom - (p / high) * (height - bottom - top);
    const line = (list) => list.map((p, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(p).toFixed(1)}`).join("");
    const text = (at, up, anchor, name, words) =>
      el("svg:text", { x: at, y: up, "text-anchor": anchor, class: name }, words);
    const svg = el("svg:svg", {
      class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Probability of the target after each step: ${values.map(percent).join(", ")}`,
    });
    for (const part of [0, 0.5, 1]) {
      svg.append(el("svg:path", { class: "grid", d: `M${left} ${y(part * high)}H${width - right}` }));
      svg.append(text(left - 6, y(part * high) + 4, "end", "axis", percent(part * high).replace(".0", "")));
    }
    if (full !== null) {
      svg.append(el("svg:path", { class: "full", d: `M${left} ${y(full)}H${width - right}` }));
      svg.append(text(left + 4, y(full) - 4, "start", "axis", "full context"));
    }
    if (against.length) svg.append(el("svg:path", { class: "line against", d: line(against) }));
    svg.append(el("svg:path", { class: "line", d: line(values) }));
    const marked = Math.min(step ?? steps.length, steps.length) - 1;
    const every = Math.ceil(steps.length / 10);
    values.forEach((p, k) => {
      const hit = steps[k].prediction_id === rationale.target_id;
      const name = `dot${hit ? " hit" : ""}${k === marked ? " now" : ""}`;
      svg.append(el("svg:circle", { class: name, cx: x(k), cy: y(p), r: k === marked ? 5.5 : 3.5 }));
      if (k % every === 0 || k === steps.length - 1)
        svg.append(text(x(k), height - 6, "middle", "axis", String(k + 1)));
    });
    return svg;
  }

  /** How a rationale grew: slider, curve, table of steps, candidates. `choose(step)` is called for a step. */
  function stepsPane(choose) {
    const slider = el("input", {
      type: "range", min: 1, "aria-label": "Step",
      input: () => choose(Number(slider.value) < Number(slider.max) ? Number(slider.value) : null),
    });
    const where = el("output", { class: "where" });
    const figure = el("div");
    const body = el("tbody");
    const heads = el("tr");
    const table = el("table", {}, el("thead", {}, heads), body);
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) slider.value = row.dataset.step, slider.dispatchEvent(new Event("input"));
    });
    const tried = el("div", { class: "candidates" });
    const replay = el("div", { class: "replay" }, slider, where);
    const node = el("section", { class: "steps", "aria-label": "Steps" },
      el("h3", {}, "Step by step"), replay, figure,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of steps" }, table), tried);

    function paint(reading, rationale, step) {
      const steps = rationale.steps ?? [];
      node.hidden = !steps.length;
      if (node.hidden) return;
      const now = Math.min(step ?? steps.length, steps.length);
      const name = (added) => added.index === null ? "(pinned only)"
        : label(reading.text(added.unit ?? [added.index]), 40);
      const contrast = reading.options.instead_of;
      replay.hidden = steps.length < 2;
      slider.max = steps.length;
      slider.value = now;
      slider.setAttribute("aria-valuetext", `step ${now} of ${steps.length}: ${name(steps[now - 1])}, `
        + percent(probability(steps[now - 1].target_logprob)));
      where.textContent = `${now} / ${steps.length}`;
      figure.replaceChildren(curve(rationale, step, contrast));
      const titles = ["", "added", "target", ...(contrast === undefined ? [] : ["instead"]), "model predicts"];
      heads.replaceChildren(...titles.map((title) => title ? el("th", { scope: "col" }, title) : el("td")));
      body.replaceChildren(...steps.map((each, k) => el("tr",
        { "data-step": k + 1, class: k + 1 === now ? "now" : k + 1 > now ? "later" : null },
        el("td", { class: "number" }, String(k + 1)),
        el("td", {}, el("bdi", {}, name(each))),
        el("td", { class: "number" }, percent(probability(each.target_logprob))),
        contrast === undefined ? null
          : el("td", { class: "number" }, percent(probability(each.contrast_logprob ?? null))),
        el("td", {}, el("bdi", {}, each.prediction_text === undefined || each.prediction_text === null
          ? `id ${each.prediction_id}` : label(each.prediction_text, 24)),
          each.prediction_id === rationale.target_id ? " ✓" : ""))));
      const candidates = steps[now - 1].candidates ?? [];
      const most = Math.max(...candidates.map((each) => probability(each.target_logprob)), 1e-9);
      tried.replaceChildren();
      if (!candidates.length) return;
      tried.append(el("h4", {}, `Candidates of step ${now}`));
      tried.append(el("ul", {}, ...candidates.map((each) => {
        const bar = el("span", { class: "bar" });
        bar.style.width = `${(100 * probability(each.target_logprob)) / most}%`;
        const added = each.index === steps[now - 1].index;
        return el("li", { class: added ? "added" : null },
          el("bdi", {}, name(each)), el("span", { class: "track" }, bar),
          el("span", { class: "number" }, percent(probability(each.target_logprob)), added ? " ✓" : ""));
      })));
    }
    return { node, paint };
  }

  // ------------------------------------------------------------------------------------------------------ matrix

  const MOST = 200;

  /** Targets × context: a filled cell for each kept token, with the order in it. `choose(target)` selects a row. */
  function matrix(reading, { target, pin, step, unit }, chosen, choose) {
    const { tokens, rationales, item } = reading;
    const grouped = new Map(); // rows: the targets of one word or sentence are one row
    for (const rationale of rationales) {
      const group = reading.groupOf(unit, rationale.target);
      grouped.set(group, [...(grouped.get(group) ?? []), rationale]);
    }
    const allRows = [...grouped].map(([group, list]) => ({ group, list }));
    const at = Math.max(0, allRows.findIndex((row) => row.list.some((each) => each.target === target)));
    const start = Math.max(0, Math.min(at - MOST / 2, allRows.length - MOST));
    const rows = allRows.slice(start, start + MOST);
    for (const row of rows) {
      row.orders = new Map();
      for (const each of row.list) {
        const shown = each.target === target ? chosen : each;
        additions(shown, each.target === target ? step : null).forEach((added, place) => {
          for (const i of added) {
            const group = reading.groupOf(unit, i);
            row.orders.set(group, Math.min(place + 1, row.orders.get(group) ?? Infinity));
          }
        });
      }
    }
    const end = Math.max(0, ...rows.map((row) => row.list[row.list.length - 1].target));
    const every = reading.context(unit, end).map((indices) => ({ group: reading.groupOf(unit, indices[0]), indices }));
    const used = every.length <= MOST ? every : every.filter(({ group }) => rows.some((row) => row.orders.has(group)));
    const columns = used.slice(0, MOST);
    const notes = [];
    if (rows.length < allRows.length) notes.push(`${rows.length} of ${counted(allRows.length, "target")} are shown`);
    if (columns.length < every.length)
      notes.push(`of ${counted(every.length, `context ${unit}`)}, the ${columns.length} that were kept are shown`
        + (used.length > MOST ? ` (the first ${MOST} of ${used.length})` : ""));
    const note = notes.length ? `The matrix shows at most ${MOST} × ${MOST}: ${notes.join("; ")}.` : "";

    const size = columns.length <= 40 ? 24 : columns.length <= 80 ? 18 : 12;
    const font = Math.min(13, size - 2);
    const rowNames = rows.map((row) => label(reading.text(unit === "token"
      ? row.list.map((each) => each.target) : row.group), 18));
    const columnNames = columns.map(({ indices }) => label(reading.text(indices), 18));
    const long = (names) => Math.max(4, ...names.map((name) => [...name].length));
    const left = long(rowNames) * font * 0.62 + 16;
    const top = long(columnNames) * font * 0.56 + 14;
    const gap = (k) => (k && tokens[columns[k].indices[0]].side !== tokens[columns[k - 1].indices[0]].side ? size : 0);
    let at2 = left;
    const x = columns.map((_, k) => (at2 += (k ? size : 0) + gap(k)));
    const width = (x[x.length - 1] ?? left) + size + top * 0.7 + 8;
    const height = top + rows.length * size + 8;
    const svg = el("svg:svg", {
      class: "matrix", width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
      "aria-label": "Matrix: a row for each target, a column for each part of the context",
    });
    columnNames.forEach((name, k) => svg.append(el("svg:text", {
      class: "name", "font-size": font, transform: `translate(${x[k] + size * 0.65} ${top - 6}) rotate(-55)`,
    }, name)));
    const linked = (kind) => new Set((item.gold?.[kind] ?? []).map(([s, t]) => `${s} ${t}`));
    const [sure, possible] = [linked("sure"), linked("possible")];
    rows.forEach((row, r) => {
      const y = top + r * size;
      const own = row.list.some((each) => each.target === target);
      const second = row.list.some((each) => each.target === pin) && !own;
      const kept = joined(tokens, row.list.flatMap((each) => each.indices));
      const line = el("svg:g", {
        class: `row${own ? " own" : ""}${second ? " second" : ""}`, role: "button", tabindex: own ? 0 : -1,
        "aria-pressed": own || second, "data-target": row.list[0].target,
        "aria-label": `${rowNames[r]}: keeps ${kept ? label(kept, 200) : "nothing"}`,
      });
      line.append(el("svg:rect", { class: "hit", x: 0, y, width: width - top * 0.7, height: size }));
      line.append(el("svg:text", {
        class: "name", "font-size": font, "text-anchor": "end", x: left - 8, y: y + size / 2 + font * 0.35,
      }, rowNames[r]));
      const last = row.list[row.list.length - 1].target;
      columns.forEach(({ group, indices }, k) => {
        const order = row.orders.get(group);
        const box = { x: x[k] + 1, y: y + 1, width: size - 2, height: size - 2, rx: 2 };
        if (indices[0] < last) line.append(el("svg:rect", { class: order ? "cell on" : "cell", ...box }));
        if (order && size >= 18)
          line.append(el("svg:text", {
            class: "order", "font-size": 11, "text-anchor": "middle", x: x[k] + size / 2, y: y + size / 2 + 4,
          }, String(order)));
        const pairs = indices.flatMap((s) => row.list.map((each) => `${s} ${each.target}`));
        const link = pairs.some((pair) => sure.has(pair)) ? "sure" : pairs.some((pair) => possible.has(pair)) ? "possible" : "";
        if (link) line.append(el("svg:rect", { class: `gold ${link}`, ...box }));
      });
      svg.append(line);
    });
    const node = el("div", { class: "matrix-box scroll", tabindex: "0", role: "region", "aria-label": "Matrix" }, svg);
    const press = (line) => choose(Number(line.dataset.target));
    svg.addEventListener("click", (event) => {
      const line = event.target.closest(".row");
      if (line) press(line);
    });
    const keys = roving(svg, ".row", press);
    keys.setEntry(svg.querySelector(".row.own") ?? svg.querySelector(".row"));
    return { node, note, svg, gold: sure.size + possible.size > 0 };
  }

  // ------------------------------------------------------------------------------------------------------- trial

  const PAUSE = 120; // milliseconds without a change before the model is asked

  /** "Try it yourself": parts of the context switched on and off, and what the model predicts from what is left. */
  function trialPane(host, changed, searched) {
    let reading = null, rationale = null, unit = "token", keep = new Set(), place = 0;
    let asked = 0, timer = 0, answer = null, groups = [];
    const text = el("div", { class: "running trial-text", dir: "auto", role: "group", "aria-label": "Context to switch on and off" });
    const spans = [];
    const says = el("p", { class: "says", "aria-live": "polite" });
    const status = el("p", { class: "status", role: "status" });
    const all = () => reading.context("token", rationale.target).flat();
    const start = () => rationale.indices;
    const node = el("section", { class: "trial", "aria-label": "Try it yourself" },
      el("h3", {}, "Try it yourself"),
      el("p", { class: "hint" }, "Switch parts of the context off and on. The model predicts from what is left."),
      text, says,
      el("div", { class: "actions" },
        button("Reset to the rationale", () => set(start())),
        button("Keep all", () => set(all())),
        button("Keep none", () => set([])),
        button("Find a rationale within this", () => search([...keep])),
        button("Find another one without these", () => search(all().filter((i) => !keep.has(i)))),
        button("Download trial (JSON)", download)),
      status);
    const keys = roving(text, "[role=button]", (span) => toggle(Number(span.dataset.i)));
    text.addEventListener("click", (event) => {
      const span = event.target.closest(".token");
      if (span) toggle(Number(span.dataset.i));
    });

    /** A decoder predicts from the token before the target: that one is always kept. */
    function required() {
      const i = rationale.target - 1;
      const token = reading.tokens[i];
      const free = !token || token.pinned || reading.explanation.evaluation === "black-box";
      return free || token.side !== reading.tokens[rationale.target].side ? [] : [i];
    }

    function toggle(i) {
      const group = groups.find((each) => each.includes(i));
      if (!group) return;
      const fixed = required();
      const on = group.filter((j) => !fixed.includes(j)).some((j) => keep.has(j));
      set([...keep].filter((j) => !group.includes(j)).concat(on ? [] : group));
    }

    function set(indices) {
      const allowed = new Set(all());
      keep = new Set([...indices, ...required()].filter((i) => allowed.has(i)));
      paint();
      changed(sorted());
      ask();
    }

    const sorted = () => [...keep].sort((a, b) => a - b);

    /** Ask the model after a short pause; of several answers under way, only the newest is shown. */
    function ask() {
      const number = ++asked;
      answer = null;
      node.setAttribute("aria-busy", "true");
      clearTimeout(timer);
      timer = setTimeout(async () => {
        try {
          const found = await host.score({ item: place, target: rationale.target, keep: sorted() });
          if (number === asked) answer = found, report();
        } catch (error) {
          if (number === asked) says.replaceChildren(`No prediction: ${error.message ?? error}`);
        }
        if (number === asked) node.removeAttribute("aria-busy");
      }, PAUSE);
    }

    function report() {
      const size = `${keep.size.toLocaleString("en")} of ${counted(all().length, "context token")}`;
      const target = rationale.target_text ?? reading.tokens[rationale.target].text;
      const first = answer.prediction_text === null || answer.prediction_text === undefined
        ? `token ${answer.prediction_id}` : quote(answer.prediction_text);
      const known = (value) => value !== null && value !== undefined;
      says.replaceChildren(
        el("span", { class: `verdict ${answer.sufficient ? "yes" : "no"}` },
          answer.sufficient ? "✓ sufficient" : "✗ not sufficient"),
        ` From ${size} the model predicts `, first,
        known(answer.prediction_logprob) ? ` (${percent(probability(answer.prediction_logprob))})` : "",
        ". The target ", quote(target), ` has ${percent(probability(answer.target_logprob))}`,
        known(answer.rank) ? ` and rank ${answer.rank.toLocaleString("en")}.` : ".");
    }

    function paint() {
      const fixed = new Set(required());
      for (const group of groups) {
        const on = group.some((i) => keep.has(i) && !fixed.has(i)) || group.every((i) => fixed.has(i));
        for (const i of group) spans[i].classList.toggle("off", !keep.has(i));
        const head = spans[group[0]];
        head.setAttribute("aria-pressed", String(on));
        head.setAttribute("aria-disabled", String(group.every((i) => fixed.has(i))));
        for (const i of group) spans[i].classList.toggle("fixed", fixed.has(i));
      }
    }

    /** The target changed: write its context, and start from these indices or from its rationale. */
    function open(index, newReading, newRationale, newUnit, indices) {
      const same = reading && place === index && rationale.target === newRationale.target
        && unit === newUnit && reading.tokens.length === newReading.tokens.length;
      const kept = same || (rationale?.target === newRationale.target && place === index) ? sorted() : null;
      const before = rationale;
      [place, reading, rationale, unit] = [index, newReading, newRationale, newUnit];
      if (same && before.indices.join() === rationale.indices.join()) return;
      groups = reading.context(unit, rationale.target);
      spans.length = 0;
      text.replaceChildren();
      writeText(text, reading.tokens.slice(0, rationale.target), spans);
      for (const group of groups) {
        const head = spans[group[0]];
        head.setAttribute("role", "button");
        head.setAttribute("tabindex", "-1");
        if (group.length > 1) head.setAttribute("aria-label", label(reading.text(group), 200));
      }
      keys.first();
      status.textContent = "";
      if (kept && !indices) return paint();
      const allowed = new Set(all());
      keep = new Set([...(indices ?? start()), ...required()].filter((i) => allowed.has(i)));
      paint();
      says.replaceChildren("…");
      ask();
    }

    async function search(indices) {
      const within = [...new Set([...indices, ...required()])].sort((a, b) => a - b);
      status.textContent = "Searching …";
      try {
        searched(rationale.target);
        const found = await host.search({ item: place, target: rationale.target, within });
        status.textContent = "";
        if (Number.isInteger(found)) searched(rationale.target, found);
      } catch (error) {
        status.textContent = `No rationale: ${error.message ?? error}`;
      }
    }

    function download() {
      const { model, method, adapter } = reading.explanation;
      save("trial.json", "application/json", JSON.stringify({
        model, adapter, method, target: rationale.target,
        target_text: rationale.target_text ?? reading.tokens[rationale.target].text,
        tokens: reading.tokens, keep: sorted(), text: joined(reading.tokens, keep), prediction: answer,
      }, null, 1));
    }

    return { node, open, forget: () => (reading = rationale = null), kept: sorted };
  }

  // --------------------------------------------------------------------------------------------------- downloads

  function save(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = el("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  const PRESENTATION = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-weight"];

  /** A picture on the page as an SVG file: what the style sheet says becomes attributes. */
  function svgFile(svg) {
    const copy = svg.cloneNode(true);
    const [from, to] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
    from.forEach((node, k) => {
      const style = getComputedStyle(node);
      for (const name of PRESENTATION) to[k].setAttribute(name, style.getPropertyValue(name));
      for (const name of ["class", "role", "tabindex", "aria-pressed", "aria-label", "data-target"])
        to[k].removeAttribute(name);
    });
    copy.prepend(backdrop(svg, svg.getAttribute("width"), svg.getAttribute("height")));
    return new XMLSerializer().serializeToString(copy);
  }

  function backdrop(node, width, height) {
    const page = getComputedStyle(node.closest(".rationales"));
    return el("svg:rect", { width, height, fill: page.backgroundColor });
  }

  /** The running text as an SVG file: every token where it stands on the page, with its marks. */
  function textFile(node, about) {
    const frame = node.getBoundingClientRect();
    const [width, height] = [Math.ceil(frame.width) + 24, Math.ceil(frame.height) + 24];
    const svg = el("svg:svg", { width, height, viewBox: `0 0 ${width} ${height}` },
      el("svg:desc", {}, about), backdrop(node, width, height));
    for (const span of node.querySelectorAll(".token")) {
      const style = getComputedStyle(span);
      const size = parseFloat(style.fontSize);
      const [box] = span.getClientRects();
      if (!box) continue;
      const [x, y] = [box.left - frame.left + 12, box.top - frame.top + 12];
      const marked = MARKS.some((name) => span.classList.contains(name));
      if (marked) {
        const second = span.matches(".kept2, .part2");
        const tint = style.getPropertyValue(span.matches(".kept, .part") ? "--a-tint" : "--b-tint");
        const fill = span.matches(".target, .target2") ? style.backgroundColor : tint.trim();
        svg.append(el("svg:rect", { x, y, width: box.width, height: box.height, rx: 2, fill }));
        if (span.matches(".kept, .kept2"))
          svg.append(el("svg:path", {
            d: `M${x} ${y + box.height}h${box.width}`, stroke: style.textDecorationColor, "stroke-width": 2,
            "stroke-dasharray": second ? "4 2" : null,
          }));
        for (const [order, up] of [[span.dataset.order, -3], [span.dataset.order2, box.height + size * 0.65]])
          if (order) svg.append(el("svg:text", {
            x: x - 1, y: y + up, "font-size": size * 0.6, "font-family": "sans-serif", fill: style.textDecorationColor,
          }, order));
      }
      svg.append(el("svg:text", {
        x, y: y + box.height * 0.79, "font-size": size, "font-family": style.fontFamily, "font-style": style.fontStyle,
        fill: style.color, textLength: box.width, lengthAdjust: "spacingAndGlyphs",
      }, span.textContent));
    }
    return new XMLSerializer().serializeToString(svg);
  }

  // -------------------------------------------------------------------------------------------------- the viewer

  const OWN = ["item", "target", "alternative", "pin", "step", "unit", "view", "beside", "keep"];

  /** Show explanations in `root`. */
  function view(root, data, host = null) {
    const state = { item: 0, target: null, alternative: 0, pin: null, step: null, unit: "token", view: "text", beside: null };
    let readings = [];
    let trying = null; // the kept indices of "Try it yourself" while it is open
    let awaited = null; // {target, items}: a search that was started, and how many items there were
    let touched = false; // whether the reader chose something: then the address says what
    let drawn = null; // the matrix on the page

    // What is always there.
    const list = el("ol", { class: "items" });
    const listKeys = roving(list, "button", (each) => each.click());
    const nav = el("nav", { "aria-label": "Explanations" }, list);
    const meta = el("p", { class: "meta" });
    const views = switchOf("View", { text: "Text", matrix: "Matrix" }, (value) => change({ view: value }));
    const units = switchOf("Marked as", { token: "Tokens", word: "Words", sentence: "Sentences" },
      (value) => change({ unit: value }));
    const besides = el("select", { change: () => change({ beside: besides.value === "" ? null : Number(besides.value) }) });
    const beside = el("label", { class: "beside" }, "Beside ", besides);
    const bar = el("div", { class: "bar-row" }, views, units, beside,
      el("span", { class: "space" }), button("JSON", downloadJson, { title: "Download the explanation as JSON" }),
      button("SVG", downloadSvg, { title: "Download the picture as SVG" }));
    const legend = el("p", { class: "legend" });
    const matrixPlace = el("div", { class: "matrix-place" });
    const empty = el("p", { class: "hint" }, "Nothing is explained yet.");
    const panes = [0, 1].map(() => pane());
    const columns = el("div", { class: "columns" }, ...panes.map((each) => each.node));
    const trial = host ? trialPane(host, (kept) => (trying = kept, remember()), expect) : null;
    const opener = host ? button("Try it yourself", () => (trying = trying ? null : [], change({}, true)), { class: "primary" }) : null;
    root.replaceChildren();
    root.classList.add("rationales");
    root.append(nav, meta, bar, empty, legend, columns);
    root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      if (state.pin !== null) change({ pin: null });
      else if (state.target !== null) change({ target: null });
    });

    /** A text, or the matrix, with the panel about what is selected in it. */
    function pane() {
      const text = textPane(select, preview);
      const heading = el("h2");
      const words = el("div", { class: "words", "aria-live": "polite" });
      const others = el("div", { class: "switch others", role: "group", "aria-label": "Rationales of this target" });
      const pinning = el("div", { class: "actions" });
      const steps = stepsPane((step) => change({ step }));
      const panel = el("aside", { class: "panel", "aria-label": "About the target" }, words, others, pinning, steps.node);
      const main = el("div", { class: "main" }, heading, text.node);
      return { node: el("div", { class: "pane" }, main, panel), main, heading, text, words, others, pinning, steps, panel };
    }

    // ---- what is selected

    const current = () => readings[state.item];
    const besideReading = () => (state.beside === null ? null : readings[state.beside]);

    /** The rationale of a target: the one found first, or an alternative to it. */
    function rationaleOf(reading, target, alternative = 0) {
      const found = target === null ? undefined : reading?.byTarget.get(target);
      return found && alternative > 0 ? found.alternatives?.[alternative - 1] ?? found : found;
    }

    function select(target, event) {
      const found = current().byTarget.get(target) ?? besideReading()?.byTarget.get(target);
      if (!found) return;
      if (event?.shiftKey && state.target !== null && state.target !== found.target) change({ pin: found.target });
      else change({ target: found.target });
    }

    function preview(target) {
      shownPanes().forEach(([each, reading]) => {
        const rationale = rationaleOf(reading, target);
        each.text.hover(reading, rationale?.target === state.target ? null : rationale, state.unit);
        if (state.target === null) describe(each, reading, rationale); // a selection is never overridden
      });
    }

    const shownPanes = () => [[panes[0], current()], [panes[1], besideReading()]].filter(([, reading]) => reading);

    /** Change the selection, show it, and keep it in the address. */
    function change(changes, keepTrial = false) {
      const before = { ...state };
      Object.assign(state, changes);
      if (state.item !== before.item && !("beside" in changes)) state.beside = null;
      if (state.target !== before.target) state.step = null, state.alternative = changes.alternative ?? 0;
      if ((state.target !== before.target || state.item !== before.item) && trying && !keepTrial) trying = [];
      touched = true;
      settle();
      paint();
      remember();
    }

    /** What does not exist cannot be selected. */
    function settle() {
      if (!readings[state.item]) state.item = 0;
      const reading = current();
      const near = besideReading();
      if (!near || near === reading || !sameTokens(near.item, reading.item)) state.beside = null;
      const head = (target) => rationaleOf(reading, target)?.target ?? rationaleOf(besideReading(), target)?.target ?? null;
      state.target = head(state.target);
      state.pin = head(state.pin);
      const rationale = rationaleOf(reading, state.target);
      if (state.alternative > (rationale?.alternatives?.length ?? 0)) state.alternative = 0;
      const steps = rationaleOf(reading, state.target, state.alternative)?.steps?.length ?? 0;
      if (state.step !== null && !(state.step >= 1 && state.step < steps)) state.step = null;
    }

    /** The first target that has something to show. */
    function opening(reading) {
      const all = reading?.rationales ?? [];
      return (all.find((each) => each.indices.length > 1) ?? all[0])?.target ?? null;
    }

    // ---- the address

    function remember() {
      if (!touched) return;
      const parameters = new URLSearchParams(location.hash.slice(1));
      OWN.forEach((key) => parameters.delete(key));
      const usual = { item: 0, alternative: 0, unit: "token", view: "text" };
      for (const key of OWN)
        if (key in state && state[key] !== null && state[key] !== usual[key]) parameters.set(key, state[key]);
      if (trial && trying && state.target !== null) parameters.set("keep", trial.kept().join("."));
      try {
        history.replaceState(history.state, "", `${location.href.split("#")[0]}#${parameters}`);
      } catch { /* a frame without an address of its own */ }
    }

    function recall() {
      const parameters = new URLSearchParams(location.hash.slice(1));
      const number = (key) => (/^\d+$/.test(parameters.get(key) ?? "") ? Number(parameters.get(key)) : null);
      const oneOf = (key, values) => (values.includes(parameters.get(key)) ? parameters.get(key) : values[0]);
      state.item = number("item") ?? 0;
      for (const key of ["target", "pin", "step", "beside"]) state[key] = number(key);
      state.alternative = number("alternative") ?? 0;
      state.unit = oneOf("unit", ["token", "word", "sentence"]);
      state.view = oneOf("view", ["text", "matrix"]);
      const kept = parameters.get("keep");
      trying = trial && kept !== null ? { from: kept.split(".").filter((each) => /^\d+$/.test(each)).map(Number) } : null;
      touched = OWN.some((key) => parameters.has(key));
    }

    // ---- what is shown

    function paint() {
      const reading = current();
      for (const node of [bar, legend, columns, meta]) node.hidden = !reading;
      empty.hidden = Boolean(reading);
      nav.hidden = readings.length < 2;
      if (!reading) return;
      [...list.querySelectorAll("button")].forEach((each, k) => {
        each.toggleAttribute("aria-current", k === state.item);
        if (k === state.item) each.setAttribute("aria-current", "true"), listKeys.setEntry(each);
      });
      views.press(state.view);
      units.press(state.unit);
      fillBesides(reading);
      meta.replaceChildren(...aboutRun(reading));
      const two = besideReading() !== null;
      columns.classList.toggle("two", two);
      panes[1].node.hidden = !two;
      drawn = null;
      shownPanes().forEach(([each, one]) => paintPane(each, one, two));
      if (opener) opener.setAttribute("aria-expanded", String(Boolean(trying)));
      paintTrial(reading);
      explainMarks(reading);
    }

    function paintPane(each, reading, two) {
      const { text, main, panel, heading } = each;
      const rationale = rationaleOf(reading, state.target, state.alternative);
      const pinned = rationaleOf(reading, state.pin);
      heading.hidden = !two;
      heading.textContent = reading.item.title;
      text.write(reading);
      text.clear();
      text.hover(reading, null);
      text.node.classList.toggle("chosen", Boolean(rationale));
      if (pinned) text.mark(reading, pinned, null, state.unit, true);
      if (rationale) text.mark(reading, rationale, state.step, state.unit, false);
      text.node.hidden = state.view === "matrix";
      main.querySelector(".matrix-place")?.remove();
      if (state.view === "matrix") {
        const focused = main.ownerDocument.activeElement?.closest?.(".row") !== null;
        const made = matrix(reading, state, rationale, (target) => {
          change({ target });
          main.querySelector(".row.own")?.focus();
        });
        if (each === panes[0]) drawn = made;
        main.append(el("div", { class: "matrix-place" }, made.node, el("p", { class: "hint" }, made.note)));
        if (focused) main.querySelector(".row.own")?.focus();
      }
      panel.hidden = false;
      describe(each, reading, rationale);
    }

    /** The panel about a rationale: the selected one, or one under the pointer while none is selected. */
    function describe(each, reading, rationale) {
      const { words, others, pinning, steps } = each;
      const selected = rationale && state.target === rationale.target;
      const pinned = rationaleOf(reading, state.pin);
      const said = rationale ? inWords(reading, rationale) : [];
      const paragraphs = said.filter((parts) => parts.length).map((parts, k) =>
        el("p", { class: ["lead", "", "faint"][k] }, ...parts));
      words.replaceChildren();
      if (rationale) words.append(verdicts(rationale), ...paragraphs);
      else if (state.target !== null) words.append(el("p", { class: "hint" }, "This target is not explained here."));
      else words.append(el("p", { class: "hint" }, "Choose a token to see which part of the context the model needed for it."));
      if (selected && pinned && pinned.target !== rationale.target) {
        const shared = rationale.indices.filter((i) => pinned.indices.includes(i));
        words.append(el("p", { class: "second" }, "Compared with ", quote(pinned.target_text),
          pinned.indices.length ? ", for which " : "", ...(pinned.indices.length
            ? [quote(joined(reading.tokens, pinned.indices)), ` (${counted(pinned.indices.length, "token")}) was kept`] : []),
          shared.length ? `: ${counted(shared.length, "token")} in common, ` : ": nothing in common.",
          ...(shared.length ? [quote(joined(reading.tokens, shared)), "."] : [])));
      }
      const alternatives = selected ? rationaleOf(reading, state.target).alternatives ?? [] : [];
      others.hidden = !alternatives.length;
      others.replaceChildren(...[rationaleOf(reading, state.target), ...alternatives].map((one, k) =>
        button(k ? `Alternative ${k}` : "First rationale", () => change({ alternative: k, step: null }),
          { "aria-pressed": String(k === state.alternative), title: one ? counted(one.indices.length, "token") : "" })));
      pinning.hidden = each !== panes[0] || !selected;
      pinning.replaceChildren();
      if (!pinning.hidden) {
        if (state.pin === null)
          pinning.append(button("Pin to compare", () => change({ pin: state.target })));
        else pinning.append(button("Unpin", () => change({ pin: null })));
        if (opener) pinning.append(opener);
        if (state.pin !== null && state.pin === state.target)
          pinning.append(el("span", { class: "hint" }, "Now choose a second target."));
      }
      if (rationale) steps.paint(reading, rationale, selected ? state.step : null);
      else steps.node.hidden = true;
    }

    function paintTrial(reading) {
      if (!trial) return;
      const rationale = rationaleOf(reading, state.target, state.alternative);
      const open = Boolean(trying && rationale && rationale.target > 0);
      if (open) {
        if (!trial.node.isConnected) panes[0].main.append(trial.node);
        trial.open(state.item, reading, rationale, state.unit, trying.from ?? null);
        trying = trial.kept();
      } else {
        trial.node.remove();
        trial.forget();
      }
    }

    function explainMarks(reading) {
      const entry = (name, words, order) =>
        el("span", {}, el("span", { class: `token ${name}`, "data-order": order ?? null }, "token"), ` ${words}`);
      const two = state.pin !== null && state.pin !== state.target;
      legend.replaceChildren();
      if (state.view === "matrix") {
        legend.append("Rows are targets, columns are the context. A filled cell was kept; its number is the order.");
        if (drawn?.gold) legend.append(" Outlined: sure links; dashed: possible links of the gold alignment.");
        return;
      }
      if (state.target !== null) {
        legend.append(entry("target", "target"), entry("kept", "kept, in this order", 1));
        if (state.unit !== "token") legend.append(entry("part", `in the same ${state.unit}`));
      }
      if (two) legend.append(entry("target2", "pinned target"), entry("kept2", "kept for it"), entry("kept kept2", "kept for both"));
      if (reading.tokens.some((token) => token.pinned)) legend.append(entry("pinned", "always seen"));
    }

    function aboutRun(reading) {
      const { model, method, adapter, evaluation, seconds, complete, unexplainable = [] } = reading.explanation;
      const options = Object.entries(reading.options).map(([name, value]) =>
        value === true ? name.replaceAll("_", "-") : `${name.replaceAll("_", "-")} ${label(String(value), 30)}`);
      const parts = [label(model, 60), ...(adapter ? [`adapter ${label(adapter.split(/[\\/]/).pop(), 40)}`] : []), method,
        ...options, `${evaluation} evaluation`, counted(reading.rationales.length, "target"), `${seconds.toFixed(1)} s`];
      if (complete === false) parts.push("interrupted: only the finished targets");
      if (unexplainable.length) parts.push(`${counted(unexplainable.length, "token")} with nothing before: unexplainable`);
      return parts.flatMap((part, k) => (k ? [" · ", el("bdi", {}, part)] : [el("bdi", {}, part)]));
    }

    function fillBesides(reading) {
      const fitting = readings.map((each, k) => [each, k])
        .filter(([each]) => each !== reading && sameTokens(each.item, reading.item));
      beside.hidden = !fitting.length;
      besides.replaceChildren(el("option", { value: "" }, "nothing"),
        ...fitting.map(([each, k]) => el("option", { value: k }, label(each.item.title, 50))));
      besides.value = state.beside === null ? "" : String(state.beside);
    }

    // ---- downloads

    const fileName = (ending) =>
      `${(current().item.title.match(/[\p{L}\p{N}]+/gu) ?? ["explanation"]).join("-").slice(0, 40)}.${ending}`;

    function downloadJson() {
      save(fileName("json"), "application/json", JSON.stringify(current().explanation, null, 1) + "\n");
    }

    function downloadSvg() {
      const picture = drawn ? svgFile(drawn.svg) : textFile(panes[0].text.node, panes[0].words.textContent);
      save(fileName("svg"), "image/svg+xml", picture);
    }

    // ---- new data

    /** A search was started for this target: its result, a new item, is shown when it is there. */
    function expect(target, found = null) {
      if (found !== null) {
        awaited = null;
        if (found < readings.length) change({ item: found, target });
      } else awaited = { target, items: readings.length };
    }

    function update(next) {
      data = next;
      readings = data.items.map(read);
      const entries = readings.map(({ item, rationales, explanation }, k) => {
        const good = rationales.filter((each) => each.sufficient).length;
        return el("li", {}, button(el("bdi", {}, label(item.title, 90)),
          () => change({ item: k, target: sameItem(k) ? state.target : opening(readings[k]), pin: null }), { tabindex: -1 }),
        el("span", { class: "faint" }, `${explanation.method}, ${good} of ${counted(rationales.length, "target")} sufficient`));
      });
      list.replaceChildren(...entries);
      if (awaited && readings.length > awaited.items && readings[readings.length - 1].byTarget.has(awaited.target)) {
        Object.assign(state, { item: readings.length - 1, target: awaited.target, beside: null, step: null });
        awaited = null;
        touched = true;
      }
      const wanted = { ...state };
      settle();
      if (wanted.target !== null && state.target === null && touched) state.target = null;
      else if (state.target === null && !touched) state.target = opening(current());
      paint();
    }

    const sameItem = (k) => current() && sameTokens(readings[k].item, current().item);

    recall();
    update(data);
    addEventListener("hashchange", () => {
      recall();
      trial?.forget();
      settle();
      paint();
    });
    return {
      update,
      item: () => state.item,
      selection: () => ({ ...state, keep: trying ? trial.kept() : null }),
    };
  }

  return { view };
})();
