// The pages of a study. The token is behind the # of the address; what is shown is what the server says.
// Texts become text nodes, never markup. Each action is sent once the one before it is answered.
"use strict";

(() => {
  const at = (id) => document.getElementById(id);
  const token = location.hash.slice(1);
  let seen = null; // what is shown
  let latest = null; // what the server said last
  let isUnsure = false; // whether an answer got lost, so that more may be saved than was said
  let chosen = []; // the selector's words, also those on their way to the server
  let isUndoing = false; // then these are not yet known
  let waiting = 0;
  let line = Promise.resolve();

  function made(name, text, attributes = {}) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  }

  // --- The server -----------------------------------------------------------------------------

  class Refused extends Error {} // by the server: nothing was saved

  async function ask(body) {
    const headers = { Authorization: `Bearer ${token}` };
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch("work", { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
    const data = await answer.json();
    if (!answer.ok) throw new Refused(data.error);
    return data;
  }

  function act(body) {
    waiting += 1;
    line = line.then(async () => {
      let wrong = "";
      try {
        if (isUnsure && body) await lookAgain();
        latest = await ask(body);
        isUnsure = false;
      } catch (error) {
        if (!(error instanceof Refused)) isUnsure = true;
        wrong = error instanceof Refused ? error.message : "The server does not answer: this may not be saved. Try again in a moment.";
      }
      say(wrong);
      waiting -= 1;
      if (!waiting && latest) show(latest, wrong !== "");
    });
    return line;
  }

  async function lookAgain() { // an action is for what is shown, not for something else
    const before = JSON.stringify(latest);
    latest = await ask();
    isUnsure = false;
    if (before !== "null" && before !== JSON.stringify(latest)) throw new Refused("This page was out of date: look at what is saved, and go on from there.");
  }

  function say(text) {
    at("error").textContent = text;
    at("error").hidden = !text;
  }

  // --- What is shown --------------------------------------------------------------------------

  const SECTIONS = ["consent", "select", "guess", "between", "organise"];
  const TITLES = { select: "Choose words", guess: "Guess", organise: "Organise", consent: "Welcome", between: "Annotation" };

  function show(data, again = false) {
    const before = seen;
    seen = data;
    const isNew = !before || before.show !== data.show || before.task !== data.task;
    for (const name of SECTIONS) at(name).hidden = name !== data.show;
    at("title").textContent = TITLES[data.show];
    document.title = `${TITLES[data.show]} · rationales`;
    at("who").textContent = data.name ? `You are ${data.name}.` : "";
    const roles = data.roles || [];
    const now = { select: ["selector"], guess: ["predictor"] }[data.show] || roles;
    for (const [id, role] of [["how-select", "selector"], ["how-guess", "predictor"]]) {
      at(id).hidden = !now.includes(role);
      if (isNew) at(id).open = data.finished === 0 && data.show !== "select" && data.show !== "guess";
    }
    ({ consent: showConsent, select: showSelect, guess: showGuess, between: showBetween, organise: showOrganise })[data.show](data, isNew, again);
    if (isNew && before) (data.show === "guess" ? at("word") : data.show === "between" ? at("between-heading") : at("title")).focus();
  }

  function showConsent(data) {
    at("consent-text").textContent = data.consent;
    at("agree").textContent = data.consent ? "I agree" : "Begin";
  }

  function showBetween(data) {
    at("between-heading").textContent = data.finished ? "Thank you: finished." : "Ready?";
    at("finished").textContent = data.finished === 1 ? "You have finished one passage." : `You have finished ${data.finished} passages.`;
    at("finished").hidden = !data.finished;
    at("nothing").hidden = data.more;
    at("next").textContent = !data.more ? "Look again" : data.finished ? "Next passage" : "Start";
  }

  // --- Selector -------------------------------------------------------------------------------

  function showSelect(data, isNew) {
    chosen = [...data.chosen];
    isUndoing = false;
    if (isNew) layOut(data);
    mark();
  }

  function layOut(data) {
    const letters = [...data.text]; // spans count characters, not UTF-16 units
    const pieces = [];
    let end = 0;
    data.spans.forEach(([start, stop], place) => {
      pieces.push(letters.slice(end, start).join(""));
      const word = letters.slice(start, stop).join("");
      if (place === data.spans.length - 1) pieces.push(made("mark", word, { "aria-label": `target: ${word}` }));
      else pieces.push(made("button", word, { type: "button", "data-place": place, tabindex: place ? -1 : 0 }));
      end = stop;
    });
    pieces.push(letters.slice(end).join(""));
    at("passage").replaceChildren(...pieces);
  }

  const buttons = () => [...at("passage").querySelectorAll("button")];

  function mark() {
    const first = seen.spans.length - 2;
    for (const button of buttons()) {
      const rank = chosen.indexOf(Number(button.dataset.place)) + 1;
      button.setAttribute("aria-pressed", String(rank > 0));
      if (rank) button.dataset.order = rank;
      else delete button.dataset.order;
      if (Number(button.dataset.place) === first) button.setAttribute("aria-disabled", "true");
    }
    const words = buttons().map((each) => each.textContent);
    const focused = document.activeElement?.closest("#ranking") && document.activeElement.dataset;
    const place = focused && { of: focused.of, move: focused.move };
    at("ranking").replaceChildren(...chosen.map((each, rank) => entry(each, rank, words[each])));
    if (place) {
      const same = at("ranking").querySelector(`[data-of="${place.of}"][data-move="${place.move}"]:not(:disabled)`);
      (same || at("ranking").querySelector(`[data-of="${place.of}"]:not(:disabled)`) || at("undo")).focus();
    }
    const left = seen.size - chosen.length;
    at("count").textContent = left ? `${chosen.length} of ${seen.size} words: ${left} more` : `all ${seen.size} words`;
    at("finish").disabled = left > 0;
    at("undo").disabled = !seen.undoable && !waiting;
  }

  function entry(place, rank, word) {
    const row = made("span", undefined, { class: "entry" });
    row.append(made("bdi", word));
    if (rank) {
      for (const [move, sign, what, off] of [["up", "↑", "up", rank === 1], ["down", "↓", "down", rank === chosen.length - 1], ["out", "✕", "out", false]]) {
        const label = move === "out" ? `take ${word} out` : `move ${word} ${what}`;
        const button = made("button", sign, { type: "button", "data-of": place, "data-move": move, "aria-label": label });
        button.disabled = off;
        row.append(button);
      }
    }
    const item = made("li");
    item.append(row);
    return item;
  }

  function change(words) {
    if (isUndoing) return;
    chosen = words;
    act({ do: "words", task: seen.task, words });
    mark();
  }

  at("passage").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    step(button, false);
    const place = Number(button.dataset.place);
    if (place === seen.spans.length - 2) return;
    if (chosen.includes(place)) change(chosen.filter((each) => each !== place));
    else if (chosen.length < seen.size) change([...chosen, place]);
    else say(`There are ${seen.size} words already: take one out first.`);
  });

  at("passage").addEventListener("keydown", (event) => {
    const all = buttons();
    const own = all.indexOf(document.activeElement);
    if (own < 0) return;
    const moves = { ArrowRight: own + 1, ArrowLeft: own - 1, Home: 0, End: all.length - 1, ArrowDown: beside(all, own, 1), ArrowUp: beside(all, own, -1) };
    const next = all[moves[event.key]];
    if (!(event.key in moves)) return;
    event.preventDefault();
    if (next) step(next, true);
  });

  function beside(all, own, way) { // the nearest word of the line below or above
    const box = all[own].getBoundingClientRect();
    const lines = all.map((each) => each.getBoundingClientRect());
    const other = lines.filter((each) => way * (each.top - box.top) > box.height / 2).map((each) => each.top);
    const top = way > 0 ? Math.min(...other) : Math.max(...other);
    let best = own;
    let least = Infinity;
    lines.forEach((each, place) => {
      const far = Math.abs(each.left - box.left);
      if (Math.abs(each.top - top) < 2 && far < least) [best, least] = [place, far];
    });
    return best;
  }

  function step(button, focus) {
    for (const each of buttons()) each.tabIndex = each === button ? 0 : -1;
    if (focus) button.focus();
  }

  at("ranking").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const rank = chosen.indexOf(Number(button.dataset.of));
    const words = [...chosen];
    const [word] = words.splice(rank, 1);
    if (button.dataset.move !== "out") words.splice(rank + (button.dataset.move === "up" ? -1 : 1), 0, word);
    change(words);
  });

  at("undo").addEventListener("click", () => {
    isUndoing = true;
    act({ do: "undo", task: seen.task });
  });
  at("finish").addEventListener("click", () => act({ do: "finish", task: seen.task }));

  // --- Predictor ------------------------------------------------------------------------------

  function showGuess(data, isNew, again) {
    const words = new Map(data.revealed);
    const [newest] = data.revealed[data.revealed.length - 1];
    const pieces = [];
    let hidden = 0;
    const close = () => {
      if (hidden) pieces.push(made("span", ` ${hidden} hidden ${hidden === 1 ? "word" : "words"} `, { class: "heard" }));
      hidden = 0;
    };
    for (let place = 0; place < data.places; place += 1) {
      if (words.has(place)) {
        close();
        pieces.push(made("span", words.get(place), place === newest ? { class: "new" } : {}));
      } else {
        hidden += 1;
        pieces.push(made("i", undefined, { "aria-hidden": "true" }));
      }
      pieces.push(" ");
    }
    close();
    pieces.push(made("i", undefined, { class: "asked", "aria-hidden": "true" }), made("span", " the word to guess", { class: "heard" }));
    at("places").replaceChildren(...pieces);
    at("newest").textContent = `Word ${data.revealed.length} of ${data.size}: ${words.get(newest)}`;
    if (!again) {
      at("word").value = data.before;
      at("word").select();
    }
    for (const id of ["send", "pass"]) at(id).disabled = false;
  }

  function guess(word) {
    if (waiting) return;
    for (const id of ["send", "pass"]) at(id).disabled = true;
    act({ do: "guess", task: seen.task, revealed: seen.revealed.length, guess: word }).then(() => {
      if (seen.show === "guess") at("word").focus();
    });
  }

  at("guessing").addEventListener("submit", (event) => {
    event.preventDefault();
    const word = at("word").value.trim();
    if (!word) say("Write a word, or choose “No idea”.");
    else if (/\s/.test(word)) say("Guess one word.");
    else guess(word);
  });
  at("pass").addEventListener("click", () => guess(""));
  at("agree").addEventListener("click", () => act({ do: "agree" }));
  at("next").addEventListener("click", () => act({ do: "next" }));

  // --- Organiser ------------------------------------------------------------------------------

  function showOrganise(data) {
    at("progress-list").replaceChildren(...Object.entries(data.progress).map(([name, value]) => {
      const pair = made("div");
      pair.append(made("dt", name), made("dd", value));
      return pair;
    }));
    at("annotators").replaceChildren(...data.annotators.map(annotator));
    at("guesses").replaceChildren(...data.guesses.map(judged));
  }

  function row(heading, ...cells) {
    const found = made("tr");
    found.append(made("th", heading, { scope: "row" }));
    for (const cell of cells) {
      const box = made("td");
      box.append(...[cell].flat());
      found.append(box);
    }
    return found;
  }

  function annotator(each) {
    const link = made("input", undefined, { readonly: "", "aria-label": `link of ${each.name}`, value: `${location.origin}${location.pathname}#${each.token}` });
    link.addEventListener("focus", () => link.select());
    const release = made("button", "Release", { type: "button", "aria-label": `give the open passage of ${each.name} to others` });
    release.disabled = !each.open;
    release.addEventListener("click", () => act({ do: "release", annotator: each.id }));
    const gone = made("button", "Delete", { type: "button", "aria-label": `delete all data of ${each.name}` });
    gone.addEventListener("click", () => {
      if (gone.classList.contains("danger")) act({ do: "delete", annotator: each.id });
      else {
        gone.classList.add("danger");
        gone.textContent = "Delete all data?";
        gone.setAttribute("aria-label", `really delete all data of ${each.name}`);
      }
    });
    gone.addEventListener("blur", () => {
      gone.classList.remove("danger");
      gone.textContent = "Delete";
      gone.setAttribute("aria-label", `delete all data of ${each.name}`);
    });
    const when = new Date(each.last).toLocaleString();
    return row(each.name, each.roles.join(", "), link, String(each.ranked), String(each.played), each.open || (each.agreed ? "–" : "not begun"), when, [release, " ", gone]);
  }

  function judged(each) {
    const label = `${each.accepted ? "withdraw" : "accept"} ${each.guess} for ${each.target}`;
    const button = made("button", each.accepted ? "Withdraw" : "Accept", { type: "button", "aria-label": label });
    button.addEventListener("click", () => act({ do: "judge", passage: each.passage, guess: each.guess, accepted: !each.accepted }));
    return row(each.passage, each.target, each.guess, String(each.plays), [button, each.accepted ? " ✓ accepted" : ""]);
  }

  at("adding").addEventListener("submit", (event) => {
    event.preventDefault();
    act({ do: "add", roles: at("role").value.split(" ") });
  });
  at("refresh").addEventListener("click", () => act());

  addEventListener("hashchange", () => location.reload());
  if (token) act();
  else say("This page needs the whole link that you were given, with all that is behind the #.");
})();
