// The live page: a form that asks the server, and the viewer that shows what comes back.
// The address keeps the text, the mode, the model and the options; the viewer keeps its own there.
"use strict";

(async () => {
  const at = (id) => document.getElementById(id);
  const data = { items: [] };
  const OPTIONS = ["method", "unit", "fast", "minimal", "coarse_to_fine", "criterion", "instead_of",
    "continuation", "max_size", "disjoint", "beam", "keep_candidates", "src_lang", "tgt_lang"];
  const DEFAULTS = { method: "greedy", unit: "token" };
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
    const can = { continue: causal, text: causal, chat: model.chat, translate: !causal };
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
    }
  }

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
    if (mode() === "text") chosen.target = at("target").value;
    else if (mode() !== "translate" && chosen.continuation === undefined) {
      chosen.generate = Number(at("generate").value);
    }
    if (mode() === "chat") chosen.chat = true;
    return { model: at("model").value, text: at("text").value, options: chosen };
  }

  // --- The address ----------------------------------------------------------------------------

  function remember(body) {
    const hash = new URLSearchParams(location.hash.slice(1));
    hash.set("text", body.text);
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
    if (!hash.has("text")) return false;
    at("text").value = hash.get("text");
    if (models.some((each) => each.name === hash.get("model"))) at("model").value = hash.get("model");
    fit();
    chooseMode(hash.get("mode") || "continue");
    let chosen = {};
    try { chosen = JSON.parse(hash.get("options") || "{}") || {}; } catch { /* a damaged link */ }
    for (const name of [...OPTIONS, "generate", "target"]) {
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
        if (name === "rationale") {
          item.explanation.rationales.push(value);
          item.explanation.rationales.sort((a, b) => a.target - b.target);
          show();
        }
        if (name === "done") {
          item.explanation = value.explanation;
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
    for (const name of ["target", "pin", "step", "keep", "beside"]) hash.delete(name);
    location.replace(`#${hash}`); // which the viewer hears, and which adds no entry to the history
  }

  function bare(item) {
    return data.items[item].explanation.tokens.map(({ id, text, pinned, side }) =>
      ({ id, text, ...(pinned && { pinned }), ...(side && { side }) }));
  }

  function named(item) {
    return data.items[item].model || at("model").value;
  }

  async function score({ item, target, keep }) {
    const { criterion = "argmax", instead_of } = data.items[item].explanation.options || {};
    const how = { ...(criterion !== "none" && { criterion }), ...(instead_of && { instead_of }) };
    return (await post("score", { model: named(item), tokens: bare(item), target, keep, ...how })).json();
  }

  function search({ item, target, within }) {
    const { span, within: before, ...chosen } = data.items[item].explanation.options || {};
    return explain({ model: named(item), tokens: bare(item), target, within,
      options: { method: data.items[item].explanation.method, ...chosen } }, "your search");
  }

  // --- Start ----------------------------------------------------------------------------------

  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const body = asked();
    forget("item", "target", "pin", "step", "keep", "beside");
    remember(body);
    explain(body);
  });
  at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("ask").requestSubmit();
  });
  at("stop").addEventListener("click", () => stop && stop());
  at("clear").addEventListener("click", () => {
    data.items.length = 0;
    forget("text", "mode", "model", "options", "item", "target", "pin", "step", "keep", "beside");
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
  if (recall()) explain(asked());
})();
