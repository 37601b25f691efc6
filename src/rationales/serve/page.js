// The live page: a form that asks the server, and the viewer that shows what comes back.
// The address keeps the text (or the documents, or the messages), the mode, the model and the options; the viewer keeps its
// own there.
"use strict";

(async () => {
  const at = (id) => document.getElementById(id);
  const data = { items: [] };
  const OPTIONS = ["method", "unit", "fast", "minimal", "coarse_to_fine", "certify", "finest", "criterion", "instead_of",
    "continuation", "max_size", "disjoint", "beam", "keep_candidates", "src_lang", "tgt_lang"];
  const DEFAULTS = { method: "greedy", unit: "token" };
  const PROMPT = ["text", "messages", "documents", "question", "template", "search_question"];
  const SELECTED = ["item", "target", "alternative", "pin", "step", "keep", "beside"];
  let view = null;
  let stop = null; // stops the request under way

  const models = await (await fetch("models")).json();
  for (const model of models) at("model").add(new Option(model.name, model.name));

  // --- The form -------------------------------------------------------------------------------

  const mode = () => document.querySelector("input[name=mode]:checked").value;

  function chooseMode(name) {
    const input = document.querySelector(`input[name=mode][value="${CSS.escape(name)}"]`);
    if (input && !input.disabled) input.checked = true;
  }

  function fit() {
    const model = models.find((each) => each.name === at("model").value);
    const causal = model.kind === "causal";
    const can = { continue: causal, text: causal, documents: causal, chat: model.chat, translate: !causal };
    for (const input of document.querySelectorAll("input[name=mode]")) {
      input.disabled = !can[input.value];
      input.parentElement.hidden = input.disabled;
    }
    if (document.querySelector("input[name=mode]:checked").disabled) {
      chooseMode(model.kind === "causal" ? "continue" : "translate");
    }
    const chosen = at("method").value || DEFAULTS.method;
    at("method").replaceChildren(...model.methods.map((name) => new Option(name, name)));
    at("method").value = model.methods.includes(chosen) ? chosen : DEFAULTS.method;
    for (const each of document.querySelectorAll("[data-for]")) {
      each.hidden = !each.dataset.for.split(" ").includes(mode());
      if (each instanceof HTMLFieldSetElement) each.disabled = each.hidden;
    }
    at("text").disabled = at("text").parentElement.hidden;
    if (!model.chat) at("chat").parentElement.hidden = true;
    at("generate").placeholder = mode() === "continue" ? "8" : "all";
  }

  /** A list of documents or messages to fill in: each row has the fields of its template, one row stays. */
  function listOf(name, start) {
    const list = at(`${name}s`);
    const row = at(`${name}-row`).content;
    function add(values = {}) {
      const item = row.cloneNode(true).firstElementChild;
      for (const input of item.querySelectorAll("[data-key]")) {
        const value = values[input.dataset.key];
        if (input.type === "checkbox") input.checked = value === true;
        else if (typeof value === "string") {
          if (input.options && ![...input.options].some((each) => each.value === value)) input.add(new Option(value, value));
          input.value = value;
        }
      }
      item.querySelector(".remove").addEventListener("click", () => {
        const next = item.nextElementSibling || item.previousElementSibling;
        item.remove();
        (next ? next.querySelector(".remove") : at(`add-${name}`)).focus();
        number();
      });
      list.append(item);
      number();
      return item;
    }
    /** Names that tell the rows apart. */
    function number() {
      const own = name[0].toUpperCase() + name.slice(1);
      [...list.children].forEach((item, k) => {
        for (const input of item.querySelectorAll("[data-key]")) {
          input.setAttribute("aria-label", `${own} ${k + 1}: ${input.dataset.name}`);
        }
        const remove = item.querySelector(".remove");
        remove.setAttribute("aria-label", `Remove ${name} ${k + 1}`);
        remove.hidden = list.children.length === 1;
      });
    }
    function values() {
      return [...list.children].map((item) => Object.fromEntries([...item.querySelectorAll("[data-key]")]
        .map((input) => [input.dataset.key, input.type === "checkbox" ? input.checked : input.value])
        .filter(([key, value]) => value !== false && (value !== "" || key === "text" || key === "content"))));
    }
    function fill(rows) {
      list.replaceChildren();
      for (const each of rows.length ? rows : [start]) add(typeof each === "string" ? { text: each } : each || {});
    }
    at(`add-${name}`).addEventListener("click", () => {
      const answers = name === "message" && values().at(-1).role === "user";
      add(answers ? { role: "assistant" } : {}).querySelector("textarea").focus();
    });
    fill([]);
    return { values, fill };
  }

  const documents = listOf("document", {});
  const messages = listOf("message", { role: "user" });

  function options() {
    const found = {};
    for (const name of OPTIONS) {
      const input = at(name);
      const value = input.type === "checkbox" ? input.checked
        : input.type === "number" ? (input.value === "" ? null : Number(input.value)) : input.value;
      if (value !== null && value !== "" && value !== false && value !== DEFAULTS[name]) {
        found[name] = value;
      }
    }
    return found;
  }

  function asked() {
    const chosen = options();
    const prompt = {};
    if (mode() === "text") chosen.target = at("target").value;
    else if (mode() !== "translate" && chosen.continuation === undefined && at("generate").value !== "") {
      chosen.generate = Number(at("generate").value);
    }
    if (mode() === "documents" || mode() === "chat") {
      if (at("answer").value) chosen.target = at("answer").value;
      if (at("span").checked) chosen.span = true;
    }
    if (mode() === "chat") prompt.messages = messages.values();
    else if (mode() === "documents") {
      prompt.documents = documents.values();
      for (const name of ["question", "template"]) if (at(name).value) prompt[name] = at(name).value;
      if (at("search_question").checked) prompt.search_question = true;
      if (at("chat").checked && !at("chat").parentElement.hidden) chosen.chat = true;
    } else prompt.text = at("text").value;
    return { model: at("model").value, ...prompt, options: chosen };
  }

  // --- The address ----------------------------------------------------------------------------

  function remember(body) {
    const hash = new URLSearchParams(location.hash.slice(1));
    for (const name of PROMPT) {
      if (body[name] === undefined) hash.delete(name);
      else hash.set(name, typeof body[name] === "string" ? body[name] : JSON.stringify(body[name]));
    }
    hash.set("mode", mode());
    hash.set("model", body.model);
    hash.set("options", JSON.stringify(body.options));
    history.replaceState(null, "", `#${hash}`);
  }

  function forget(...names) {
    const hash = new URLSearchParams(location.hash.slice(1));
    for (const name of names) hash.delete(name);
    history.replaceState(null, "", `#${hash}`);
  }

  function recall() {
    const hash = new URLSearchParams(location.hash.slice(1));
    const read = (name, otherwise) => {
      try { return JSON.parse(hash.get(name)) ?? otherwise; } catch { return otherwise; /* a damaged link */ }
    };
    if (!PROMPT.some((name) => hash.has(name))) return false;
    for (const name of ["text", "question", "template"]) at(name).value = hash.get(name) || "";
    at("search_question").checked = hash.get("search_question") === "true";
    for (const [name, list] of [["documents", documents], ["messages", messages]]) {
      const rows = read(name, []);
      list.fill(Array.isArray(rows) ? rows : []);
    }
    if (models.some((each) => each.name === hash.get("model"))) at("model").value = hash.get("model");
    fit();
    chooseMode(hash.get("mode") || "continue");
    if (mode() === "chat" && !hash.has("messages")) messages.fill([{ role: "user", content: at("text").value }]);
    const chosen = Object(read("options", {}));
    chosen[mode() === "text" ? "target" : "answer"] = chosen.target;
    for (const name of [...OPTIONS, "generate", "target", "answer", "span", "chat"]) {
      if (chosen[name] === undefined || !["string", "number", "boolean"].includes(typeof chosen[name])) continue;
      if (at(name).type === "checkbox") at(name).checked = chosen[name] === true;
      else at(name).value = chosen[name];
    }
    fit();
    return true;
  }

  // --- Asking the server ----------------------------------------------------------------------

  async function post(path, body, signal) {
    const answer = await fetch(path, { method: "POST", signal, body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" } });
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.error || `the server answered ${answer.status}`);
  }

  async function* events(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const [, name, text] = /^event: (\w+)\ndata: (.*)$/s.exec(part) || [];
        if (name) yield [name, JSON.parse(text)];
      }
    }
  }

  function show() {
    if (view === null) view = Rationales.view(at("results"), data, { score, search });
    else view.update(data);
    at("downloads").hidden = data.items.length === 0;
  }

  async function explain(body, title) {
    if (stop) stop();
    const controller = new AbortController();
    let item = null;
    const own = () => controller.abort();
    stop = own;
    at("stop").hidden = false;
    at("error").hidden = true;
    at("status").textContent = "asking …";
    try {
      for await (const [name, value] of events(await post("explain", body, controller.signal))) {
        if (name === "queued") at("status").textContent = `${value.position} in the queue`;
        if (name === "started") at("status").textContent = "explaining …";
        if (name === "progress") {
          at("progress").hidden = value.total === 0;
          at("progress").value = value.total ? value.done / value.total : 0;
          at("status").textContent = `${value.done} of ${value.total} targets · ${value.evaluations.toLocaleString()} subsets`;
        }
        if (name === "text") {
          item = { ...value, title: `${title || value.explanation.method} · ${value.title}` };
          item.explanation.rationales = item.explanation.rationales || [];
          data.items.push(item);
          show();
          if (!title && data.items.length > 1) select(data.items.length - 1);
        }
        if (name === "proof") item.proofs = { ...item.proofs, [value.target]: value.facts };
        if (name === "rationale") {
          item.explanation.rationales.push(value);
          item.explanation.rationales.sort((a, b) => a.target - b.target);
          show();
        }
        if (name === "done") {
          Object.assign(item, { explanation: value.explanation, proofs: value.proofs });
          const found = item.explanation.rationales.length;
          at("status").textContent = `${found} ${found === 1 ? "rationale" : "rationales"} in ${item.explanation.seconds} s`;
          show();
        }
        if (name === "failed") throw new Error(value.error);
      }
    } catch (error) {
      if (stop === own) at("status").textContent = error.name === "AbortError" ? "stopped" : "";
      if (error.name !== "AbortError") {
        at("error").textContent = error.message;
        at("error").hidden = false;
      }
    } finally {
      if (stop === own) { // no other request has begun meanwhile
        stop = null;
        at("stop").hidden = true;
        at("progress").hidden = true;
      }
    }
  }

  function select(place) {
    const hash = new URLSearchParams(location.hash.slice(1));
    hash.set("item", place);
    for (const name of SELECTED.slice(1)) hash.delete(name);
    location.replace(`#${hash}`); // which the viewer hears, and which adds no entry to the history
  }

  function bare(item) {
    return data.items[item].explanation.tokens.map(({ id, text, pinned, side }) =>
      ({ id, text, ...(pinned && { pinned }), ...(side && { side }) }));
  }

  function named(item) {
    return data.items[item].model || at("model").value;
  }

  function lengthOf(item, target) {
    return data.items[item].explanation.rationales.find((each) => each.target === target)?.target_length || 1;
  }

  async function score({ item, target, keep }) {
    const { criterion = "argmax", instead_of, evaluation } = data.items[item].explanation.options || {};
    const how = { ...(criterion !== "none" && { criterion }), ...(instead_of && { instead_of }), ...(evaluation && { evaluation }) };
    return (await post("score", { model: named(item), tokens: bare(item), target, length: lengthOf(item, target), keep, ...how })).json();
  }

  function search({ item, target, within }) {
    const { within: before, ...chosen } = data.items[item].explanation.options || {};
    return explain({ model: named(item), tokens: bare(item), parts: data.items[item].explanation.parts || [], target,
      length: lengthOf(item, target), within,
      options: { method: data.items[item].explanation.method, ...chosen } }, "your search");
  }

  // --- Start ----------------------------------------------------------------------------------

  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const body = asked();
    forget(...SELECTED);
    remember(body);
    explain(body);
  });
  at("ask").addEventListener("keydown", (event) => {
    const isText = event.target instanceof HTMLTextAreaElement;
    if (isText && event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("ask").requestSubmit();
  });
  at("stop").addEventListener("click", () => stop && stop());
  at("clear").addEventListener("click", () => {
    data.items.length = 0;
    forget(...PROMPT, "mode", "model", "options", ...SELECTED);
    show();
  });
  at("download-html").addEventListener("click", async () => {
    try {
      const page = await post("html", { explanations: data.items.map((item) => item.explanation) });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await page.blob());
      link.download = "rationales.html";
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      at("error").textContent = error.message;
      at("error").hidden = false;
    }
  });
  at("model").addEventListener("change", fit);
  at("modes").addEventListener("change", fit);
  fit();
  at("explain").disabled = false; // before this, the browser would send the form itself
  if (recall()) explain(asked());
})();
