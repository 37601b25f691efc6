/* The viewer of explanations: one script for files, notebooks and the live page.

   Rationales.view(root, data, host = null) → {update(data), item(), selection()}

   `data` is {items: [{title, explanation (schema 2), units, proofs?, gold?}, …]}. With a `host`, {score({item, target, keep}),
   search({item, target, within})}, the viewer shows "Try it yourself". What is selected is one object, `state`: `paint`
   shows it, the hash of the address keeps it. Texts become text nodes: nothing of the data is ever read as HTML. */
"use strict";

globalThis.Rationales = (() => {
// ---- elements

const SVG = "http://www.w3.org/2000/svg";

/** An element "tag.class" with these attributes; a function is a listener, a string child becomes a text node. */
function el(kind, attributes = {}, ...children) {
  if (typeof attributes === "string" || attributes instanceof Node) return el(kind, {}, attributes, ...children);
  const [tag, ...classes] = kind.split(".");
  const node = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  node.classList.add(...classes);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value != null && value !== false) node.setAttribute(name, value);
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
  const node = el("div.switch", { role: "group", "aria-label": label }, ...buttons);
  node.press = (value) => buttons.forEach((each) => each.setAttribute("aria-pressed", each.dataset.value === value));
  return node;
}

/** One member of a group is in the tab order; arrow keys move among all, Enter and Space press. */
function roving(container, selector, press) {
  container.addEventListener("keydown", (event) => {
    const from = event.target.closest(selector);
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...container.querySelectorAll(selector)];
    const at = all.indexOf(from);
    const along = getComputedStyle(from).direction === "rtl" ? -1 : 1;
    const next = {
      ArrowRight: () => all[at + along],
      ArrowLeft: () => all[at - along],
      ArrowDown: () => nearest(all, from, 1),
      ArrowUp: () => nearest(all, from, -1),
      Home: () => all[0],
      End: () => all.at(-1),
      Enter: () => press(from, event),
      " ": () => press(from, event),
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

// ---- texts

const LONGEST = 60; // characters of a token that are shown
const SIGNS = { "\n": "⏎", "\r": "␍", "\t": "⇥" };
// Control, half, private and format characters (which turn the direction of text); two joiners are needed by scripts.
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
  return el("span.quote", "“", el("bdi", label(text, most)), "”");
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

const grouped = (number) => number.toLocaleString("en");
const counted = (number, what) => `${grouped(number)} ${what}${number === 1 ? "" : "s"}`;

/** null stands for the log-probability −∞. */
const probability = (logprob) => (logprob === null ? 0 : Math.exp(logprob));

function percent(p) {
  if (p > 0 && p < 1e-5) return "<\u00a00.001\u00a0%";
  return `${p < 0.0995 ? Number((100 * p).toPrecision(3)) : (100 * p).toFixed(1)}\u00a0%`;
}

// ---- rationales

/** What was added, in order: a list of token indices each. With a step: only what was added up to it. */
function additions(rationale, step = null) {
  if (step !== null && step < (rationale.steps ?? []).length)
    return rationale.steps.slice(0, step).filter((s) => s.index !== null).map((s) => s.unit ?? [s.index]);
  const units = rationale.units ?? [];
  return [...units, ...rationale.indices.filter((i) => !units.some((unit) => unit.includes(i))).map((i) => [i])];
}

/** How tokens are marked: index → {kept, order, joined}; not kept: others of a word or sentence of which one is; joined: to
    the token before it, with which it was added. */
function marksOf(reading, rationale, step, unit) {
  const marks = new Map();
  const numbered = new Set();
  additions(rationale, step).forEach((added, place) => {
    added.forEach((i, k) => {
      const group = reading.groupOf(unit, i);
      const joined = added[k - 1] === i - 1 && /^ +\S/.test(reading.tokens[i].text);
      const isNew = !numbered.has(group);
      numbered.add(group);
      marks.set(i, { kept: true, joined, order: isNew && (unit !== "token" || k === 0) ? place + 1 : null });
      for (const j of isNew ? group : []) if (j < rationale.target && !marks.has(j)) marks.set(j, { kept: false, order: null });
    });
  });
  return marks;
}

/** What the viewer asks about an item, prepared once. */
function read(item) {
  const { tokens, rationales, options = {}, parts = [] } = item.explanation;
  const byTarget = new Map(); // each token of a target → its rationale
  const facts = new Map(); // each rationale → what was proven of it, in words
  for (const rationale of rationales) {
    for (let k = 0; k < (rationale.target_length ?? 1); k++) byTarget.set(rationale.target + k, rationale);
    const proven = item.proofs?.[rationale.target] ?? [];
    [rationale, ...(rationale.alternatives ?? [])].forEach((each, k) => facts.set(each, proven[k] ?? []));
  }
  const groups = { token: tokens.map((_, i) => [i]) };
  const segments = segmentsOf(tokens, parts);
  groups.part = [...groups.token];
  for (const { kind, start, end } of segments)
    if (NAMES[kind] && kind !== "answer") groups.part.fill(groups.token.slice(start, end).flat(), start, end);
  for (const unit of ["word", "sentence"]) {
    groups[unit] = [...groups.token];
    for (const group of item.units?.[unit] ?? []) for (const i of group) groups[unit][i] = group;
  }
  return {
    item, tokens, rationales, options, byTarget, facts, segments,
    partName: parts[0] && (parts[0].kind === "message" ? "message" : "document"),
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

const NAMES = { message: "Message", document: "Document", question: "Question", answer: "Answer" };

/** A prompt of messages or documents in order: these, what the template has around them, and the answer; [] of a text. */
function segmentsOf(tokens, parts) {
  const found = [];
  let at = 0;
  function add(kind, name, start, end) {
    if (start < at || end <= start || end > tokens.length) return;
    if (at < start) found.push({ kind: "template", start: at, end: start });
    found.push({ kind, name, start, end });
    at = end;
  }
  for (const { kind, name, start, end } of [...parts].sort((a, b) => a.start - b.start)) add(kind, name, start, end);
  let answer = at; // what follows the last part and is not the template's
  while (tokens[answer]?.pinned) answer++;
  if (found.length) add("answer", "", answer, tokens.length);
  if (found.length && at < tokens.length) found.push({ kind: "template", start: at, end: tokens.length });
  return found;
}

/** What a part is called: its kind, and the role or title. */
function caption({ kind, name }) {
  const own = kind === "message" || kind === "document";
  return el("span.part-name", el("span.kind", NAMES[kind]), ...(own ? [" ", el("bdi", label(name, 80))] : []));
}

/** How many words of a part a rationale has. */
function wordsIn({ groupOf }, { indices }, { start, end }) {
  return new Set(indices.filter((i) => start <= i && i < end).map((i) => groupOf("word", i))).size;
}

function sameTokens({ tokens: one }, { tokens: other }) {
  return one.length === other.length && one.every((token, i) => token.text === other[i].text);
}

/** The plain words about a rationale: three paragraphs, each a list of strings and elements. */
function inWords({ tokens, explanation, options, context, facts }, rationale) {
  const { indices, sufficient, minimal, optimal, predicted, evaluations, full_context: full } = rationale;
  const target = quote(rationale.target_text ?? tokens[rationale.target].text);
  const all = context("token", rationale.target).length;
  const lead = ["Given ", ...(indices.length ? ["only ", quote(joined(tokens, indices))] : ["nothing"]),
    ` (${grouped(indices.length)} of ${counted(all, "context token")}), `, target];
  if (options.instead_of !== undefined)
    lead.push(` is ${sufficient ? "" : "not "}more likely than `, quote(options.instead_of));
  else if ((options.criterion ?? "argmax") !== "argmax")
    lead.push(` ${sufficient ? "meets" : "does not meet"} the criterion ${options.criterion}`);
  else lead.push(` is ${sufficient ? "" : "not "}the model’s most likely next ${
    rationale.target_length > 1 ? "tokens" : "token"}`);
  const last = rationale.steps?.at(-1);
  if (!sufficient && last?.prediction_text && last.prediction_id !== rationale.target_id)
    lead.push("; the model predicts ", quote(last.prediction_text));
  lead.push(".");
  if (!sufficient)
    lead.push({
      "max-size": " The search stopped at its maximum size.", budget: " The search stopped at its limit of evaluations.",
      deletion: " All that may be kept is not sufficient either.", soft: "",
      exhaustive: " No subset is sufficient; this is the best.",
    }[rationale.stopped ?? explanation.method] ?? " The search added all it could.");

  const more = [];
  // What was proven says whether something can be dropped, if that was checked.
  const isProven = facts.get(rationale).length > 0 && (optimal ?? minimal ?? null) !== null;
  if (optimal && !isProven) more.push("No smaller subset is sufficient. ");
  else if (minimal && !isProven) more.push("Nothing can be dropped from it; a smaller rationale of other tokens may exist. ");
  else if (minimal === false && !isProven) more.push("It is not minimal: something can be dropped from it. ");
  else if (sufficient && !isProven) more.push("Whether something can be dropped from it was not checked. ");
  if (typeof predicted === "boolean") {
    more.push(`Given the full context, it is ${predicted ? "" : "not "}the model’s first choice`);
    if (full) more.push(` (${percent(probability(full.target_logprob))})`);
    if (!predicted && full?.prediction_text) more.push("; that is ", quote(full.prediction_text));
    more.push(".");
  }
  const how = {
    sparse: " (kept tokens alone, at their original positions)", masked: " (the full context under a mask)",
  }[explanation.evaluation] ?? "";
  return [lead, more, [`${counted(evaluations, "subset")} scored by ${explanation.evaluation} evaluation${how}.`]];
}

function verdict(sufficient) {
  return sufficient ? el("span.verdict.yes", "✓ sufficient") : el("span.verdict.no", "✗ not sufficient");
}

/** Short marks of the verdict, for eyes that skim. */
function verdicts({ sufficient, optimal, minimal, predicted, stopped }) {
  const more = [optimal ? "optimal" : minimal && "minimal", predicted === false && "not predicted",
    stopped && `stopped: ${stopped}`];
  return el("p.verdicts", verdict(sufficient), ...more.filter(Boolean).map((text) => el("span.verdict", text)));
}

// ---- text pane

/** Write these tokens as running text, and put the span of each into `spans`. */
function writeText(container, tokens, spans) {
  for (const token of tokens) {
    let [, before, core, breaks] = /^( *)([^]*?)(\n*)$/.exec(token.text);
    if (!core && !breaks) [before, core] = ["", "␣".repeat(before.length)]; // a token of spaces only
    const whole = visible(core + breaks) || "·";
    const span = el("span.token", { "data-i": token.index }, cut(whole));
    span.classList.toggle("blank", !token.text.trim());
    span.classList.toggle("pinned", Boolean(token.pinned));
    if (cut(whole) !== whole) span.title = whole;
    spans[token.index] = span;
    container.append(before, span, breaks);
  }
}

const FOLDED = 300; // a prompt of more tokens is folded
const LEAST = 30; // by this many tokens at a time

/** The tokens without which, or without the unit of which, the full context is not sufficient. */
const criticalOf = ({ proof }) => (proof?.critical_units ?? []).flat();

/** One text with its marks: `choose(token, event)` and `preview(token)` are called for its targets. */
function textPane(choose, preview) {
  const node = el("div.running");
  const spans = [];
  const marked = new Set();
  const hovered = new Set();
  let parts = []; // the messages and documents on the page
  let shown = []; // the rationales by which they are folded
  const keys = roving(node, "[role=button]", (span, event) => choose(Number(span.dataset.i), event));
  const at = ({ target }) => Number(target.closest("[role=button], .more")?.dataset.i ?? -1);
  let written = null;
  node.addEventListener("click", (event) => at(event) >= 0 && choose(at(event), event));
  node.addEventListener("mouseover", (event) => preview(at(event)));
  node.addEventListener("mouseleave", () => preview(-1));

  /** Write the text, unless it is there already, and make its targets pressable. */
  function write(reading) {
    const { tokens, byTarget } = reading;
    if (reading === written) return;
    if (!written || !sameTokens(written, reading)) {
      marked.clear();
      hovered.clear();
      node.replaceChildren();
      parts = reading.segments.map((segment) => writePart(reading, segment));
      const sides = parts.length ? [] : tokens.some((token) => token.side) ? ["source", "target"] : [undefined];
      for (const side of sides) {
        const name = { source: "Source", target: "Translation" }[side];
        const part = el("div", { dir: "auto", role: "group", "aria-label": name ?? "Text" });
        writeText(part, tokens.filter((token) => (token.side ?? undefined) === side), spans);
        node.append(...(side ? [el("h3", name)] : []), part);
      }
    }
    written = reading;
    tokens.forEach((_, i) => {
      const rationale = byTarget.get(i);
      const head = rationale?.target === i;
      spans[i].classList.toggle("more", Boolean(rationale) && !head);
      for (const [name, value] of [["role", "button"], ["aria-pressed", "false"], ["tabindex", "-1"]])
        if (!head) spans[i].removeAttribute(name);
        else if (!spans[i].hasAttribute(name)) spans[i].setAttribute(name, value);
    });
    node.classList.toggle("few", byTarget.size < 0.6 * tokens.filter((token) => !token.pinned).length); // underlined then
    if (!node.querySelector("[tabindex='0']")) keys.first();
  }

  /** Write a part of a prompt, sentence by sentence, so that some can be folded. */
  function writePart(reading, segment) {
    const { kind, start, end } = segment;
    const tokens = reading.tokens.slice(start, end);
    const body = el("div.body", { dir: "auto" });
    const part = { segment, body, blocks: [], folded: false, open: null }; // open: whether the reader wants all, or none
    const isOwn = kind in NAMES;
    let before;
    for (const token of tokens) {
      const key = token.pinned || !isOwn ? null : reading.groupOf("sentence", token.index);
      if (!part.blocks.length || key !== before) part.blocks.push({ span: el("span.block"), indices: [], open: false });
      before = key;
      part.blocks.at(-1).indices.push(token.index);
    }
    for (const { span, indices } of part.blocks) writeText(span, indices.map((i) => reading.tokens[i]), spans);
    body.append(...part.blocks.map(({ span }) => span));
    part.note = el("span.faint");
    part.toggle = isOwn && kind !== "answer" ? button("", () => flip(part)) : null;
    part.name = isOwn ? caption(segment).textContent : "Template";
    const head = isOwn ? el("h3", { tabindex: -1 }, caption(segment), part.note, part.toggle) : null;
    part.node = el(isOwn ? `div.segment.${kind}` : "div.template", { role: "group", "aria-label": part.name }, head, body);
    node.append(part.node);
    return part;
  }

  function flip(part) {
    part.open = part.folded;
    for (const block of part.blocks) block.open = false;
    fold(written, shown);
  }

  /** Fold the sentences that these rationales have nothing of: in long prompts, and where the reader asks for it. */
  function fold(reading, rationales) {
    const isNew = rationales[0] !== shown[0];
    shown = rationales;
    const wanted = new Set(rationales.flatMap(({ indices }) => indices));
    const isLong = rationales.length > 0 && reading.tokens.length > FOLDED;
    for (const part of parts.filter(({ toggle }) => toggle)) {
      const { segment, body, blocks, note, toggle } = part;
      const words = rationales[0] ? wordsIn(reading, rationales[0], segment) : 0;
      if (isNew && words && part.open === false) part.open = null;
      body.querySelectorAll(".folded").forEach((line) => line.remove());
      const touched = blocks.map(({ indices }) => indices.some((i) => wanted.has(i) || reading.byTarget.has(i)));
      const stays = blocks.map(({ open }, k) =>
        open || (part.open ?? (!isLong || touched.slice(Math.max(0, k - 1), k + 2).includes(true))));
      part.folded = false;
      for (let k = 0, end; k < blocks.length; k = end) {
        for (end = k + 1; end < blocks.length && stays[end] === stays[k]; ) end++;
        const run = blocks.slice(k, end);
        const indices = run.flatMap((block) => block.indices);
        const hidden = !stays[k] && (part.open === false || indices.length >= LEAST);
        for (const { span } of run) span.hidden = hidden;
        if (!hidden) continue;
        part.folded = true;
        const beginning = el("bdi", label(reading.text(indices.slice(0, 40)), 60));
        run[0].span.before(button(el("span", beginning, ` · ${counted(indices.length, "token")}`), () => {
          for (const block of run) block.open = true;
          fold(reading, rationales);
          part.node.firstChild.focus({ preventScroll: true });
        }, { class: "folded" }));
      }
      const pinned = reading.tokens.slice(segment.start, segment.end).every((token) => token.pinned);
      note.textContent = [counted(segment.end - segment.start, "token"), pinned && "always seen",
        words && `${counted(words, "word")} in the rationale`].filter(Boolean).join(" · ");
      part.node.classList.toggle("touched", words > 0);
      toggle.hidden = !part.folded && segment.end - segment.start < LEAST;
      toggle.textContent = part.folded ? "Show all" : "Fold";
      toggle.setAttribute("aria-expanded", !part.folded);
      toggle.setAttribute("aria-label", `${toggle.textContent}: ${part.name}`);
    }
  }

  /** Scroll to a part of the prompt. */
  function showPart(segment) {
    const { node: place } = parts.find((part) => part.segment === segment);
    place.scrollIntoView({ block: "start" });
    place.firstChild.focus({ preventScroll: true });
  }

  function clear() {
    for (const span of marked) {
      span.classList.remove("kept", "part", "target", "kept2", "part2", "target2", "critical", "joined");
      delete span.dataset.order;
      delete span.dataset.order2;
      if (span.hasAttribute("role")) span.setAttribute("aria-pressed", "false");
    }
    marked.clear();
  }

  /** Mark a rationale: of the selected target, or of the pinned one (which: "2"). */
  function mark(reading, rationale, step, unit, which) {
    for (const [i, { kept, order, joined }] of marksOf(reading, rationale, step, unit)) {
      spans[i].classList.add((kept ? "kept" : "part") + which);
      if (joined && !which) spans[i].classList.add("joined");
      if (order) spans[i].dataset[`order${which}`] = order;
      marked.add(spans[i]);
    }
    for (const i of which ? [] : criticalOf(rationale)) {
      spans[i].classList.add("critical");
      marked.add(spans[i]);
    }
    for (const span of targetSpans(rationale)) {
      span.classList.add(`target${which}`);
      marked.add(span);
    }
    spans[rationale.target].setAttribute("aria-pressed", "true");
    if (!which) keys.setEntry(spans[rationale.target]);
  }

  const targetSpans = ({ target, target_length: length = 1 }) => spans.slice(target, target + length);

  /** Outline what would be marked for a target under the pointer. */
  function hover(reading, rationale, unit) {
    for (const span of hovered) span.classList.remove("seen", "seen-target");
    hovered.clear();
    if (!rationale) return;
    for (const [i, { kept }] of marksOf(reading, rationale, null, unit)) if (kept) put(spans[i], "seen");
    for (const span of targetSpans(rationale)) put(span, "seen-target");
    function put(span, name) {
      span.classList.add(name);
      hovered.add(span);
    }
  }

  return { node, write, clear, mark, hover, fold, showPart, reveal: (i) => spans[i]?.scrollIntoView({ block: "center" }) };
}

// ---- steps

const TOPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

/** The target's probability after each step, as a curve; a dashed line is that given the full context. */
function curve({ steps, target_id, full_context: full }, now, contrast) {
  const [width, height, left, right, top, bottom] = [340, 150, 44, 12, 16, 22];
  const values = steps.map((each) => probability(each.target_logprob));
  const against = contrast === undefined ? [] : steps.map((each) => probability(each.contrast_logprob ?? null));
  const whole = full && probability(full.target_logprob);
  const most = Math.max(...values, ...against, whole ?? 0);
  const high = TOPS.find((each) => each >= most) ?? 1;
  const x = (k) => left + (steps.length < 2 ? 0.5 : k / (steps.length - 1)) * (width - left - right);
  const y = (p) => height - bottom - (p / high) * (height - bottom - top);
  const svg = el("svg:svg.curve", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Probability of the target after each step: ${values.map(percent).join(", ")}`,
  });
  const text = (x, y, anchor, words) => svg.append(el("svg:text.axis", { x, y, "text-anchor": anchor }, words));
  const across = (kind, p) => svg.append(el(`svg:path.${kind}`, { d: `M${left} ${y(p)}H${width - right}` }));
  const line = (kind, list) => svg.append(el(`svg:path.${kind}`, { d: `M${list.map((p, k) => `${x(k)} ${y(p)}`).join("L")}` }));
  for (const p of [0, high / 2, high]) {
    across("grid", p);
    text(left - 6, y(p) + 4, "end", percent(p).replace(".0", ""));
  }
  if (full) {
    across("full", whole);
    text(left + 4, y(whole) - 4, "start", "full context");
  }
  if (against.length) line("line.against", against);
  line("line", values);
  values.forEach((p, k) => {
    const hit = steps[k].prediction_id === target_id ? ".hit" : ""; // filled: the model predicts the target
    svg.append(el(`svg:circle.dot${hit}`, { cx: x(k), cy: y(p), r: k + 1 === now ? 5.5 : 3.5 }));
    if (k % Math.ceil(steps.length / 10) === 0) text(x(k), height - 6, "middle", String(k + 1));
  });
  return svg;
}

/** How a rationale grew: slider, curve, table, candidates. `choose(step)` is called for a step. */
function stepsPane(choose) {
  const slider = el("input", { type: "range", min: 1, "aria-label": "Step", input: () => pick(Number(slider.value)) });
  const where = el("output");
  const replay = el("div.replay", slider, where);
  const figure = el("div");
  const [heads, body] = [el("tr"), el("tbody")];
  body.addEventListener("click", (event) => pick(Number(event.target.closest("tr").dataset.step)));
  const tried = el("div.candidates");
  const node = el("section.steps", { "aria-label": "Steps" }, el("h3", "Step by step"), replay, figure,
    el("div.scroll", { tabindex: "0", role: "region", "aria-label": "Table of steps" },
      el("table", el("thead", heads), body)), tried);
  const pick = (step) => choose(step < Number(slider.max) ? step : null);

  function paint(reading, rationale, step) {
    const steps = rationale?.steps ?? [];
    node.hidden = !steps.length;
    if (node.hidden) return;
    const now = step ?? steps.length;
    const contrast = reading.options.instead_of;
    const name = ({ index, unit }) => (index === null ? "(pinned only)" : label(reading.text(unit ?? [index]), 40));
    const share = (logprob) => percent(probability(logprob ?? null));
    const { candidates = [], index, target_logprob } = steps[now - 1];
    replay.hidden = steps.length < 2;
    slider.max = steps.length;
    slider.value = now;
    slider.setAttribute("aria-valuetext", `step ${now} of ${steps.length}: ${name(steps[now - 1])}, ${share(target_logprob)}`);
    where.textContent = `${now} / ${steps.length}`;
    figure.replaceChildren(curve(rationale, now, contrast));
    const titles = ["step", "added", "target", ...(contrast === undefined ? [] : ["instead"]), "model predicts"];
    heads.replaceChildren(...titles.map((title) => el("th", { scope: "col" }, title)));
    body.replaceChildren(...steps.map((each, k) => el("tr",
      { "data-step": k + 1, class: k + 1 === now ? "now" : k + 1 > now ? "later" : null },
      el("td.number", String(k + 1)), el("td", el("bdi", name(each))), el("td.number", share(each.target_logprob)),
      contrast === undefined ? null : el("td.number", share(each.contrast_logprob)),
      el("td", el("bdi", each.prediction_text == null ? `id ${each.prediction_id}` : label(each.prediction_text, 24)),
        each.prediction_id === rationale.target_id ? " ✓" : ""))));
    const most = Math.max(...candidates.map((each) => probability(each.target_logprob)), 1e-9);
    tried.hidden = !candidates.length;
    tried.replaceChildren(el("h4", `Candidates of step ${now}`), el("ul", ...candidates.map((each) => {
      const [bar, added] = [el("span.bar"), each.index === index];
      bar.style.width = `${(100 * probability(each.target_logprob)) / most}%`;
      return el(added ? "li.added" : "li", el("bdi", name(each)), el("span.track", bar),
        el("span.number", share(each.target_logprob), added ? " ✓" : ""));
    })));
  }
  return { node, paint };
}

// ---- matrix

const MOST = 200;

/** Targets × context: a filled cell for each kept token, with the order in it. `choose(target)` selects a row. */
function matrix(reading, { target, pin, step, unit }, chosen, choose) {
  const { tokens, item: { gold = {} } } = reading;
  const found = new Map(); // the targets of one word or sentence are one row
  for (const rationale of reading.rationales) {
    const group = reading.groupOf(unit, rationale.target);
    if (!found.has(group)) found.set(group, { targets: [], indices: new Set(), orders: new Map() });
    const { targets, indices, orders } = found.get(group);
    const own = rationale.target === target;
    targets.push(rationale.target);
    additions(own ? chosen : rationale, own ? step : null).forEach((added, place) => {
      for (const i of added) {
        const column = reading.groupOf(unit, i);
        indices.add(i);
        if (!orders.has(column)) orders.set(column, place + 1);
      }
    });
  }
  const all = [...found.values()];
  const own = all.findIndex((row) => row.targets.includes(target));
  const start = Math.max(0, Math.min(own - MOST / 2, all.length - MOST));
  const rows = all.slice(start, start + MOST);
  const context = reading.context(unit, Math.max(0, ...rows.map((row) => row.targets.at(-1))));
  const isKept = ([i]) => rows.some((row) => row.orders.has(reading.groupOf(unit, i)));
  const used = context.length <= MOST ? context : context.filter(isKept);
  const near = used.filter(([i]) => i < target).length - 0.3 * MOST; // so that the selected row's are in sight
  const from = Math.round(Math.max(0, Math.min(near, used.length - MOST)));
  const columns = used.slice(from, from + MOST);
  const note = rows.length === all.length && columns.length === context.length ? ""
    : `The matrix shows at most ${MOST} × ${MOST}: ${rows.length} of ${counted(all.length, "row")} and ${
      columns.length} of ${counted(context.length, "column")}, those with a filled cell.`;

  const size = columns.length <= 40 ? 24 : columns.length <= 80 ? 18 : 12;
  const font = Math.min(13, size - 2);
  const rowNames = rows.map(({ targets }) => label(reading.text(targets), 18));
  const columnNames = columns.map((indices) => label(reading.text(indices), 18));
  const longest = (names) => Math.max(4, ...names.map((name) => name.length));
  const [left, top] = [longest(rowNames) * font * 0.62 + 16, longest(columnNames) * font * 0.56 + 14];
  let right = left;
  const xs = columns.map(([i], k) => {
    if (k && tokens[i].side !== tokens[columns[k - 1][0]].side) right += size; // a gap between source and target
    return (right += size) - size;
  });
  const [width, height] = [right + top * 0.7 + 8, top + rows.length * size + 8];
  const svg = el("svg:svg.matrix", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Targets and their context",
  });
  const write = (parent, kind, words, more) => parent.append(el(`svg:text.${kind}`, { "font-size": font, ...more }, words));
  columnNames.forEach((name, k) =>
    write(svg, "name", name, { transform: `translate(${xs[k] + size * 0.65} ${top - 6}) rotate(-55)` }));
  rows.forEach(({ targets, indices, orders }, r) => {
    const y = top + r * size;
    const kind = targets.includes(target) ? ".own" : targets.includes(pin) ? ".second" : "";
    const line = el(`svg:g.row${kind}`, {
      role: "button", tabindex: -1, "aria-pressed": Boolean(kind), "data-target": targets[0],
      "aria-label": `${rowNames[r]}: keeps ${indices.size ? label(joined(tokens, indices), 200) : "nothing"}`,
    });
    const box = (k) => `M${xs[k] + 1} ${y + 1}h${size - 2}v${size - 2}h${2 - size}z`;
    const before = columns.filter(([i]) => i < targets.at(-1)).map((_, k) => box(k)).join("");
    line.append(el("svg:rect.back", { y, width: right, height: size }), el("svg:path.cell", { d: before }));
    write(line, "name", rowNames[r], { "text-anchor": "end", x: left - 8, y: y + size / 2 + font * 0.35 });
    columns.forEach((column, k) => {
      const order = orders.get(reading.groupOf(unit, column[0]));
      if (order) line.append(el("svg:path.cell.on", { d: box(k) }));
      if (order && size >= 18)
        write(line, "order", String(order), { "text-anchor": "middle", x: xs[k] + size / 2, y: y + size / 2 + 4, "font-size": 11 });
      const link = ["sure", "possible"].find((each) => gold[each]?.some(([s, t]) => column.includes(s) && targets.includes(t)));
      if (link) line.append(el(`svg:path.gold.${link}`, { d: box(k) }));
    });
    svg.append(line);
  });
  const press = (line) => line && choose(Number(line.dataset.target));
  svg.addEventListener("click", (event) => press(event.target.closest(".row")));
  roving(svg, ".row", press).setEntry(svg.querySelector(".own") ?? svg.querySelector(".row"));
  const node = el("div.matrix-box.scroll", { tabindex: "0", role: "region", "aria-label": "Matrix" }, svg);
  const reveal = () => node.scrollTo(0, (own - start) * size - 200);
  return { node, note, svg, reveal, gold: Boolean(gold.sure || gold.possible) };
}

// ---- trial

const PAUSE = 120; // milliseconds without a change before the model is asked

/** "Try it yourself": what the model predicts if parts of the context are switched off. */
function trialPane(host, changed, searched) {
  let reading, rationale, place, key, written, groups, answer; // what it is about, and the newest answer
  let [keep, asked, timer] = [new Set(), 0, 0];
  const spans = [];
  const text = el("div.running.trial-text", { dir: "auto", role: "group", "aria-label": "Context to switch on and off" });
  const says = el("p.says", { "aria-live": "polite" });
  const status = el("p.status", { role: "status" });
  const all = () => reading.context("token", rationale.target).flat();
  const kept = () => [...keep].sort((a, b) => a - b);
  const node = el("section.trial", { "aria-label": "Try it yourself" },
    el("h3", "Try it yourself"),
    el("p.hint", "Switch parts of the context off and on. The model predicts from what is left."),
    text, says,
    el("div.actions",
      button("Reset to the rationale", () => set(rationale.indices)),
      button("Keep all", () => set(all())),
      button("Keep none", () => set([])),
      button("Find a rationale within this", () => search(kept())),
      button("Find another one without these", () => search(all().filter((i) => !keep.has(i)))),
      button("Download trial (JSON)", download)),
    status);
  const keys = roving(text, "[role=button]", toggle);
  text.addEventListener("click", (event) => toggle(event.target.closest(".token")));

  /** A decoder predicts from the token before the target: that one is always kept. */
  function required() {
    const [before, target] = reading.tokens.slice(rationale.target - 1);
    const free = before.pinned || before.side !== target.side || reading.explanation.evaluation === "black-box";
    return free ? [] : [before.index];
  }

  function toggle(span) {
    const group = span && groups.find((each) => each.includes(Number(span.dataset.i)));
    const fixed = required();
    if (!group || group.every((i) => fixed.includes(i))) return; // nothing changes
    const on = group.some((i) => keep.has(i) && !fixed.includes(i));
    set(kept().filter((i) => !group.includes(i)).concat(on ? [] : group));
  }

  function set(indices, byReader = true) {
    const allowed = new Set(all());
    keep = new Set([...indices, ...required()].filter((i) => allowed.has(i)));
    paint();
    if (byReader) changed();
    ask();
  }

  function paint() {
    const fixed = required();
    for (const group of groups) {
      const free = group.filter((i) => !fixed.includes(i));
      spans[group[0]].setAttribute("aria-pressed", !free.length || free.some((i) => keep.has(i)));
      spans[group[0]].setAttribute("aria-disabled", !free.length);
      for (const i of group) {
        spans[i].classList.toggle("off", !keep.has(i));
        spans[i].classList.toggle("fixed", fixed.includes(i));
      }
    }
  }

  /** Ask the model after a short pause; of several answers under way, only the newest is shown. */
  function ask() {
    const number = ++asked;
    answer = null;
    node.setAttribute("aria-busy", "true");
    clearTimeout(timer);
    timer = setTimeout(async () => {
      let shown;
      try {
        const found = await host.score({ item: place, target: rationale.target, keep: kept() });
        if (number === asked) shown = report((answer = found));
      } catch (error) {
        shown = [`No prediction: ${error.message ?? error}`];
      }
      if (number !== asked) return;
      says.replaceChildren(...shown);
      node.removeAttribute("aria-busy");
    }, PAUSE);
  }

  function report({ sufficient, prediction_id, prediction_text, prediction_logprob, target_logprob, rank }) {
    return [
      verdict(sufficient), ` From ${grouped(keep.size)} of ${counted(all().length, "context token")} `,
      "the model predicts ", prediction_text == null ? `token ${prediction_id}` : quote(prediction_text),
      prediction_logprob == null ? "" : ` (${percent(probability(prediction_logprob))})`,
      ". The target ", quote(rationale.target_text ?? reading.tokens[rationale.target].text),
      ` has ${percent(probability(target_logprob))}`, rank == null ? "." : ` and rank ${grouped(rank)}.`,
    ];
  }

  /** Show the context of a target. A new target starts from these indices, or from its rationale. */
  function open(index, newReading, newRationale, unit, indices) {
    [place, reading, rationale] = [index, newReading, newRationale];
    const [keyBefore, writtenBefore] = [key, written];
    key = `${index} ${rationale.target}`;
    written = `${key} ${unit}`;
    if (written !== writtenBefore) {
      groups = reading.context(unit, rationale.target);
      text.replaceChildren();
      writeText(text, reading.tokens.slice(0, rationale.target), spans);
      for (const group of groups) {
        spans[group[0]].setAttribute("role", "button");
        spans[group[0]].setAttribute("tabindex", "-1");
        if (group.length > 1) spans[group[0]].setAttribute("aria-label", label(reading.text(group), 200));
      }
      keys.first();
      paint();
    }
    if (key !== keyBefore) {
      says.textContent = "…";
      status.textContent = "";
      set(indices ?? rationale.indices, false);
    }
  }

  async function search(indices) {
    const within = [...new Set([...indices, ...required()])].sort((a, b) => a - b);
    status.textContent = "Searching …";
    searched(rationale.target);
    try {
      await host.search({ item: place, target: rationale.target, within });
      status.textContent = "";
    } catch (error) {
      status.textContent = `No rationale: ${error.message ?? error}`;
    }
  }

  function download() {
    const { model, adapter } = reading.explanation;
    const { target, target_id, target_text } = rationale;
    const trial = { model, adapter, target, target_id, target_text, tokens: reading.tokens, keep: kept(), prediction: answer };
    save("trial.json", "application/json", JSON.stringify(trial, null, 1));
  }

  return { node, open, kept, forget: () => (key = written = null) };
}

// ---- downloads

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** An SVG file: these parts on the background of the page. */
function svgFile(node, width, height, parts) {
  const fill = getComputedStyle(node.closest(".rationales")).backgroundColor;
  return new XMLSerializer().serializeToString(el("svg:svg", { width, height, viewBox: `-12 -12 ${width} ${height}` },
    el("svg:rect", { x: -12, y: -12, width, height, fill }), ...parts));
}

/** The matrix as an SVG file: what the style sheet says becomes attributes. */
function matrixFile(svg) {
  const copy = svg.cloneNode(true);
  const nodes = copy.querySelectorAll("*");
  svg.querySelectorAll("*").forEach((node, k) => {
    const style = getComputedStyle(node);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-weight"])
      nodes[k].setAttribute(name, style.getPropertyValue(name));
  });
  return svgFile(svg, svg.width.baseVal.value + 24, svg.height.baseVal.value + 24, copy.childNodes);
}

/** The running text as an SVG file: every token where it stands on the page, with its marks. */
function textFile(node) {
  const frame = node.getBoundingClientRect();
  const parts = [];
  for (const span of node.querySelectorAll(".token, .part-name, .folded")) {
    const box = span.getClientRects()[0];
    if (!box) continue; // it is folded
    const style = getComputedStyle(span);
    const { textDecorationColor: line, textDecorationStyle: kind } = style;
    const [x, y, width, height] = [box.left - frame.left, box.top - frame.top, box.width, box.height];
    const put = (words, y, size, fill, more) => parts.push(
      el("svg:text", { x, y, fill, "font-size": size, "font-family": style.fontFamily, ...more }, words));
    parts.push(el("svg:rect", { x, y, width, height, rx: 2, fill: style.backgroundColor }));
    if (span.matches(".kept, .kept2"))
      parts.push(el("svg:path", {
        d: `M${x} ${y + height}h${width}${kind === "double" ? `m0 3h${-width}` : ""}`, stroke: line, "stroke-width": 2,
        "stroke-dasharray": kind === "dashed" ? "4 3" : null,
      }));
    if (span.dataset.order) put(span.dataset.order, y - 2, 10, line);
    if (span.dataset.order2) put(span.dataset.order2, y + height + 11, 10, line);
    put(span.textContent, y + height * 0.79, parseFloat(style.fontSize), style.color, { textLength: width });
  }
  return svgFile(node, frame.width + 24, frame.height + 24, parts);
}

// ---- the viewer

const USUAL = {
  item: 0, target: null, alternative: 0, pin: null, step: null, unit: "token", view: "text", beside: null, keep: null,
};

/** Show explanations in `root`. */
function view(root, data, host = null) {
  const state = { ...USUAL };
  let readings = [];
  let acted = false; // whether the reader chose something: from then on, the address follows
  let cleared = false; // whether the reader chose that nothing is selected
  let trying = false; // whether "Try it yourself" is open; `state.keep` is what it starts from
  let awaited = null; // {target, items}: a search that was started, and how many items there were
  let drawn = null; // the matrix on the page

  const list = el("ol.items");
  const listKeys = roving(list, "button", (each) => each.click());
  const nav = el("nav", { "aria-label": "Explanations" }, list);
  const meta = el("p.meta");
  const views = switchOf("View", { text: "Text", matrix: "Matrix" }, (view) => change({ view }));
  const units = switchOf("Marked as", { token: "Tokens", word: "Words", sentence: "Sentences", part: "Documents" },
    (unit) => change({ unit }));
  const besides = el("select", { change: () => change({ beside: besides.value && Number(besides.value) }) });
  const beside = el("label.beside", "Beside ", besides);
  const template = button("Show template", () => {
    const pressed = template.getAttribute("aria-pressed") !== "true";
    template.setAttribute("aria-pressed", pressed);
    for (const each of panes) each.text.node.classList.toggle("with-template", pressed);
    explainMarks(current());
  }, { "aria-pressed": "false" });
  const bar = el("div.bar-row", views, units, template, beside,
    el("div.actions", button("Save JSON", downloadJson), button("Save SVG", downloadSvg)));
  const legend = el("p.legend");
  const empty = el("p.hint", "Nothing is explained yet.");
  const panes = [pane(), pane()];
  const columns = el("div.columns", panes[0].node, panes[1].node);
  const trial = host && trialPane(host, remember, expect);
  const opener = host && button("Try it yourself", tryIt, { class: "primary" });
  root.replaceChildren(nav, meta, bar, empty, legend, columns);
  root.classList.add("rationales");
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") change(state.pin === null ? { target: null } : { pin: null });
  });

  /** A text or its matrix, with the panel about what is selected. */
  function pane() {
    const text = textPane(select, preview);
    const heading = el("h2");
    const words = el("div.words", { "aria-live": "polite" });
    const sources = el("div.sources", { role: "group", "aria-label": "Where the rationale is from" });
    const others = el("div.switch.others", { role: "group", "aria-label": "Rationales of this target" });
    const pinning = el("div.actions");
    const steps = stepsPane((step) => change({ step }));
    const main = el("div.main", heading, text.node);
    const node = el("div.pane", main,
      el("aside.panel", { "aria-label": "About the target" }, el("div.about", words, sources, others, pinning), steps.node));
    return { node, main, heading, text, words, sources, others, pinning, steps };
  }

  // ---- what is selected

  const current = () => readings[state.item];
  const near = () => (state.beside === null ? undefined : readings[state.beside]);
  const shownPanes = () => [[panes[0], current()], [panes[1], near()]].filter(([, reading]) => reading);

  /** The rationale of a target: the one found first, or an alternative to it. */
  function rationaleOf(reading, target, alternative = 0) {
    const found = reading?.byTarget.get(target);
    return found?.alternatives?.[alternative - 1] ?? found;
  }

  function select(token, event) {
    const { target } = rationaleOf(current(), token) ?? rationaleOf(near(), token);
    const place = () => event?.target.getBoundingClientRect().top ?? 0;
    const before = place();
    change(event?.shiftKey && target !== state.target ? { pin: target } : { target });
    scrollBy(0, place() - before); // what is folded above it does not move what was clicked
  }

  function preview(token) {
    for (const [each, reading] of shownPanes()) {
      const rationale = rationaleOf(reading, token);
      each.text.hover(reading, rationale?.target === state.target ? null : rationale, state.unit);
      if (state.target === null) describe(each, reading, rationale); // a selection is never overridden
    }
  }

  /** Change the selection, show it, and keep it in the address. */
  function change(changes) {
    const before = { ...state };
    Object.assign(state, changes);
    if (state.item !== before.item) state.beside = null;
    if (state.target !== before.target) Object.assign(state, { step: null, alternative: 0, keep: null });
    cleared = state.target === null;
    paint();
    remember();
  }

  /** What does not exist cannot be selected. */
  function settle() {
    if (!readings[state.item]) state.item = 0;
    const reading = current();
    if (state.unit === "part" && !reading?.partName) state.unit = "token";
    if (!near() || near() === reading || !sameTokens(near(), reading)) state.beside = null;
    const head = (token) => (rationaleOf(reading, token) ?? rationaleOf(near(), token))?.target ?? null;
    state.target = head(state.target) ?? (cleared ? null : opening(reading));
    state.pin = head(state.pin);
    if (state.alternative > (rationaleOf(reading, state.target)?.alternatives?.length ?? 0)) state.alternative = 0;
    const steps = rationaleOf(reading, state.target, state.alternative)?.steps?.length ?? 0;
    if (!(state.step >= 1 && state.step < steps)) state.step = null;
  }

  /** The first target that has something to show. */
  function opening({ rationales } = { rationales: [] }) {
    return (rationales.find((each) => each.indices.length > 1) ?? rationales[0])?.target ?? null;
  }

  // ---- the address

  function remember() {
    acted = true;
    const parameters = new URLSearchParams(location.hash.slice(1));
    const own = { ...state, keep: trying && state.target !== null ? trial.kept().join(".") : null };
    for (const [key, value] of Object.entries(own))
      if (value === USUAL[key]) parameters.delete(key);
      else parameters.set(key, value);
    try {
      history.replaceState(history.state, "", `${location.href.split("#")[0]}#${parameters}`);
    } catch { /* a frame without an address of its own */ }
  }

  function recall() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const read = (key, pattern) => (pattern.test(parameters.get(key) ?? "") ? parameters.get(key) : USUAL[key]);
    for (const key of ["item", "target", "alternative", "pin", "step", "beside"]) {
      const value = read(key, /^\d{1,9}$/);
      state[key] = typeof value === "string" ? Number(value) : key === "target" ? state.target : value;
    }
    state.unit = read("unit", /^(token|word|sentence|part)$/);
    state.view = read("view", /^(text|matrix)$/);
    state.keep = read("keep", /^[\d.]*$/)?.split(".").filter(Boolean).map(Number) ?? null;
    trying = Boolean(trial && parameters.has("keep"));
  }

  // ---- what is shown

  function paint() {
    settle();
    const reading = current();
    for (const node of [meta, bar, legend, columns]) node.hidden = !reading;
    empty.hidden = Boolean(reading);
    nav.hidden = readings.length < 2;
    if (!reading) return;
    list.querySelectorAll("button").forEach((each, k) => {
      each.setAttribute("aria-current", k === state.item);
      if (k === state.item) listKeys.setEntry(each);
    });
    views.press(state.view);
    units.press(state.unit);
    const wholes = units.querySelector("[data-value=part]");
    wholes.hidden = template.hidden = !reading.partName;
    wholes.textContent = reading.partName === "message" ? "Messages" : "Documents";
    fillBesides(reading);
    meta.replaceChildren(...aboutRun(reading));
    columns.classList.toggle("two", Boolean(near()));
    panes[1].node.hidden = !near();
    drawn = null;
    for (const [each, one] of shownPanes()) paintPane(each, one);
    if (trial) paintTrial(reading);
    explainMarks(reading);
  }

  function paintPane(each, reading) {
    const { node, main, heading, text } = each;
    const rationale = rationaleOf(reading, state.target, state.alternative);
    const pinned = rationaleOf(reading, state.pin);
    heading.hidden = !near();
    heading.textContent = label(reading.item.title, 200);
    node.classList.toggle("short", reading.tokens.length <= 120);
    text.write(reading);
    text.clear();
    text.hover();
    text.node.classList.toggle("chosen", Boolean(rationale));
    if (pinned) text.mark(reading, pinned, null, state.unit, "2");
    if (rationale) text.mark(reading, rationale, state.step, state.unit, "");
    text.fold(reading, [rationale, pinned].filter(Boolean));
    text.node.hidden = state.view === "matrix";
    const focused = main.contains(document.activeElement) && document.activeElement.matches(".row");
    main.querySelector(".matrix-place")?.remove();
    if (text.node.hidden) {
      const made = matrix(reading, state, rationale, (target) => change({ target }));
      text.node.after(el("div.matrix-place", made.node, el("p.hint", made.note)));
      made.reveal();
      if (focused) main.querySelector(".row.own")?.focus();
      drawn ??= made;
    }
    describe(each, reading, rationale);
  }

  /** The panel about the selected rationale, or, while none is selected, the one under the pointer. */
  function describe({ text, words, sources, others, pinning, steps }, reading, rationale) {
    const selected = rationale && state.target === rationale.target;
    const pinned = rationaleOf(reading, state.pin);
    words.replaceChildren();
    if (rationale) {
      const [lead, more, how] = inWords(reading, rationale);
      const proven = reading.facts.get(rationale);
      words.append(verdicts(rationale), el("p.lead", ...lead), el("p", ...more),
        ...(proven.length ? [el("h3", "Also checked"), el("ul.proof", ...proven.map((fact) => el("li", visible(fact))))] : []),
        el("p.faint", ...how));
    } else
      words.append(el("p.hint", state.target === null
        ? "Choose a token to see which part of the context the model needed for it." : "This target is not explained here."));
    if (selected && pinned && pinned.target !== state.target) {
      const shared = rationale.indices.filter((i) => pinned.indices.includes(i));
      words.append(el("p.second", "Compared with ", quote(pinned.target_text), ", for which ",
        quote(joined(reading.tokens, pinned.indices)), " was kept. In common: ",
        shared.length ? quote(joined(reading.tokens, shared)) : "nothing", "."));
    }
    const from = reading.segments.filter((each) => each.kind in NAMES && rationale && wordsIn(reading, rationale, each));
    sources.hidden = !from.length;
    sources.replaceChildren("From ", ...from.map((each) =>
      button(el("span", caption(each), `: ${counted(wordsIn(reading, rationale, each), "word")}`), () => text.showPart(each))));
    const first = rationaleOf(reading, state.target);
    others.hidden = !(selected && first.alternatives?.length);
    others.replaceChildren(...[first, ...(first?.alternatives ?? [])].map((_, alternative) =>
      button(alternative ? `Alternative ${alternative}` : "First rationale", () => change({ alternative, step: null }),
        { "aria-pressed": alternative === state.alternative })));
    pinning.hidden = pinning !== panes[0].pinning || !selected;
    if (!pinning.hidden) {
      pinning.replaceChildren(state.pin === null ? button("Pin to compare", () => change({ pin: state.target }))
        : button("Unpin", () => change({ pin: null })));
      if (opener) pinning.append(opener);
      if (state.pin === state.target) pinning.append(el("span.hint", "Now choose a second target."));
    }
    steps.paint(reading, rationale, selected ? state.step : null);
  }

  function tryIt() {
    trying = !trying;
    change({ keep: null });
  }

  function paintTrial(reading) {
    const rationale = rationaleOf(reading, state.target, state.alternative);
    const open = Boolean(trying && rationale?.target);
    opener.setAttribute("aria-expanded", open);
    if (open) {
      if (!trial.node.isConnected) panes[0].main.append(trial.node);
      trial.open(state.item, reading, rationale, state.unit, state.keep);
    } else {
      trial.node.remove();
      trial.forget();
    }
  }

  function explainMarks(reading) {
    const { tokens, rationales, partName } = reading;
    legend.replaceChildren();
    const add = (name, words, order = null) => legend.append(
      el("span", el("span", { class: `token ${name}`, "data-order": order }, "token"), ` ${words}`));
    if (drawn) {
      legend.append("Rows are targets, columns are the context. A filled cell was kept; its number is the order.");
      if (drawn.gold) legend.append(" Outlined: sure links of the gold alignment; dashed: possible ones.");
      return;
    }
    if (state.target !== null) {
      add("target", "target");
      add("kept", "kept, in this order", 1);
      if (state.unit !== "token") add("part", `in the same ${state.unit === "part" ? partName : state.unit}`);
      if (criticalOf(rationaleOf(reading, state.target, state.alternative) ?? {}).length)
        add("critical", "without it, the full context is not sufficient");
    }
    if (state.pin !== null && state.pin !== state.target) {
      add("target2", "pinned target");
      add("kept2", "kept for it");
      add("kept kept2", "kept for both");
    }
    const written = partName === undefined || template.getAttribute("aria-pressed") === "true";
    if (written && tokens.some((token) => token.pinned)) add("pinned", "always seen");
    if (state.target !== null && rationales.length > 1) legend.append("Choose another token to see its rationale.");
  }

  function aboutRun({ explanation, options, rationales }) {
    const { model, method, adapter, evaluation, seconds, complete, unexplainable } = explanation;
    const parts = [label(model), adapter && `adapter ${label(adapter.split(/[\\/]/).pop(), 40)}`, method,
      ...Object.entries(options).map(([name, value]) => name.replaceAll("_", "-") + (value === true ? "" : ` ${label(`${value}`, 30)}`)),
      `${evaluation} evaluation`, counted(rationales.length, "target"), `${seconds.toFixed(1)} s`,
      complete === false && "interrupted", unexplainable?.length && `${counted(unexplainable.length, "token")} unexplainable`];
    return parts.filter(Boolean).flatMap((part, k) => [k ? " · " : "", el("bdi", part)]);
  }

  function fillBesides(reading) {
    besides.replaceChildren(el("option", { value: "" }, "nothing"));
    readings.forEach((each, k) => {
      if (each !== reading && sameTokens(each, reading)) besides.append(el("option", { value: k }, label(each.item.title)));
    });
    beside.hidden = besides.length < 2;
    besides.value = state.beside ?? "";
  }

  // ---- downloads

  function downloadJson() {
    save("explanation.json", "application/json", `${JSON.stringify(current().explanation, null, 1)}\n`);
  }

  function downloadSvg() {
    save("explanation.svg", "image/svg+xml", drawn ? matrixFile(drawn.svg) : textFile(panes[0].text.node));
  }

  // ---- new data

  /** A search was started for this target: its result, a new item, is shown when it is there. */
  function expect(target) {
    awaited = { target, items: readings.length };
  }

  /** Show other data, such as further results: what is selected stays so. */
  function update(data) {
    readings = data.items.map(read);
    list.replaceChildren(...readings.map((reading, item) => {
      const open = () => change({ item, pin: null, target: sameTokens(reading, current()) ? state.target : opening(reading) });
      return el("li", button(el("bdi", label(reading.item.title, 90)), open, { tabindex: -1 }),
        el("span.faint", `${reading.explanation.method}, ${counted(reading.rationales.length, "target")}`));
    }));
    if (!acted) recall(); // a target that the address names may have arrived
    if (readings.length > awaited?.items && readings.at(-1).byTarget.has(awaited.target)) {
      Object.assign(state, { ...USUAL, unit: state.unit, item: readings.length - 1, target: awaited.target });
      awaited = null;
    }
    paint();
  }

  /** Go where the address says. */
  function follow() {
    recall();
    trial?.forget();
    paint();
    if (/\btarget=/.test(location.hash)) panes[0].text.reveal(state.target);
  }

  update(data);
  follow();
  addEventListener("hashchange", follow);
  return { update, item: () => state.item, selection: () => ({ ...state, keep: trying ? trial.kept() : null }) };
}

return { view };
})();
