// Asks for /state.json twice a second, and shows it. Names come from strangers: they become text nodes,
// never markup, and what cannot be seen in them is spelled out.
"use strict";

const PAUSE_MS = 500;
const SECONDS = 120;
const LONGEST = 160;

const at = (id) => document.getElementById(id);

// Characters that are invisible, or that turn the text around them.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/u;

function spelled(character) {
  return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

// Fills an element with a text from a stranger. One of spaces alone is spelled out as well.
function write(element, text) {
  if (element.dataset.text === text) {
    return;
  }
  element.dataset.text = text;
  const characters = Array.from(text);
  const isBlank = text.trim() === "";
  const isUnseen = (character) => isBlank || UNSEEN.test(character);
  const shown = document.createElement("bdi");
  let plain = "";
  for (const character of characters.slice(0, LONGEST)) {
    if (isUnseen(character)) {
      const mark = document.createElement("span");
      mark.className = "mark";
      mark.textContent = spelled(character);
      shown.append(plain, mark);
      plain = "";
    } else {
      plain += character;
    }
  }
  shown.append(plain);
  element.replaceChildren(shown);
  if (characters.length > LONGEST) {
    element.append("… " + number(characters.length) + " characters");
  }
  const whole = characters.map((it) => (isUnseen(it) ? "⟨" + spelled(it) + "⟩" : it));
  element.title = whole.join("");
}

function put(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

function make(name, className, ...children) {
  const element = document.createElement(name);
  element.className = className;
  element.append(...children);
  return element;
}

const number = (value) => value.toLocaleString("en-US");

function time(ms) {
  if (ms < 1000) {
    return Math.round(ms) + " ms";
  }
  const seconds = ms / 1000;
  if (seconds < 120) {
    return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  }
  const minutes = seconds / 60;
  return minutes < 120 ? Math.floor(minutes) + " min" : Math.floor(minutes / 60) + " h";
}

function bytes(count) {
  return count < 1048576 ? number(Math.ceil(count / 1024)) + " KiB" : (count / 1048576).toFixed(1) + " MiB";
}

// Makes the list show these items. A row stays the same element while its item is there, so that a click
// that takes a moment still hits what it was meant for.
function rows(list, items, keyOf, build) {
  const old = new Map();
  for (const row of list.children) {
    old.set(row.key, row);
  }
  let place = list.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let row = old.get(key);
    old.delete(key);
    if (!row) {
      row = build(item);
      row.key = key;
    }
    row.show(item);
    if (row === place) {
      place = place.nextElementSibling;
    } else {
      list.insertBefore(row, place);
    }
  }
  for (const row of old.values()) {
    row.remove();
  }
  list.parentElement.querySelector(".none").hidden = items.length > 0;
}

function lane() {
  const user = make("span", "user");
  const facts = make("span", "facts");
  const bar = make("i", "");
  const state = make("span", "state");
  const reason = make("span", "reason");
  const row = make(
    "li",
    "",
    make("div", "row", user, facts),
    make("div", "depth", bar),
    make("div", "why", state, reason),
  );
  row.show = (it) => {
    write(user, it.user);
    put(facts, number(it.depth) + (it.depth === 1 ? " order · " : " orders · ") + time(it.age_ms));
    bar.style.width = Math.max(1, (100 * it.depth) / it.deepest) + "%";
    state.className = "state " + it.state;
    put(state, it.state);
    write(reason, it.why);
  };
  return row;
}

function letter() {
  const user = make("span", "user");
  const order = make("span", "order");
  const why = make("span", "why");
  const button = make("button", "", "Redrive");
  button.type = "button";
  const row = make("li", "", user, order, why, button);
  row.show = (it) => {
    write(user, it.user);
    write(order, it.id ? "order " + it.id : "no order");
    const tries = it.attempts + (it.attempts === 1 ? " attempt, " : " attempts, ");
    write(why, tries + (it.error || it.kind));
    button.onclick = () => redrive(button, { sequences: [it.sequence] });
  };
  return row;
}

async function redrive(button, which) {
  const failed = at("failed");
  button.disabled = true;
  failed.hidden = true;
  try {
    const response = await fetch("/letters/redrive", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(which),
    });
    if (!response.ok) {
      throw new Error((await response.json()).message);
    }
  } catch (error) {
    failed.textContent = "Not redriven: " + error.message;
    failed.hidden = false;
  } finally {
    button.disabled = false;
  }
}

at("redrive-all").onclick = (event) => redrive(event.currentTarget, { all: true });

// What earlier processes have done, and null where one ended.
let past = [];
let current = [];
let life = null;

function remember(state) {
  if (life !== null && life !== state.life) {
    past = [...past, ...current, null].slice(-SECONDS);
  }
  life = state.life;
  current = state.rates;
}

function draw() {
  const points = [...past, ...current].slice(-SECONDS);
  const highest = Math.max(10, ...points.map((it) => (it ? Math.max(it[0], it[1]) : 0)));
  const first = SECONDS - points.length;
  const line = (which) => {
    let path = "";
    let pen = "M";
    points.forEach((it, index) => {
      if (it) {
        path += pen + (first + index + 0.5) + " " + (97 - (94 * it[which]) / highest).toFixed(2);
        pen = "L";
      } else {
        pen = "M";
      }
    });
    return path;
  };
  const restarts = points.map((it, index) => (it ? "" : "M" + (first + index + 0.5) + " 0V100"));
  at("accepted-line").setAttribute("d", line(0));
  at("done-line").setAttribute("d", line(1));
  at("restarts").setAttribute("d", restarts.join(""));
  put(at("top"), number(highest));
}

function show(state) {
  remember(state);
  draw();
  const [accepted, done] = state.rates.at(-1) ?? [0, 0];
  put(at("accepted-rate"), number(accepted));
  put(at("done-rate"), number(done));
  put(at("accepted"), number(state.accepted) + " since the start");
  put(at("done"), number(state.done) + " since the start");
  put(at("waiting"), number(state.waiting));
  put(at("file"), "the file has " + bytes(state.file_bytes));
  put(at("lanes"), number(state.lanes));
  put(at("in-flight"), number(state.in_flight) + " in flight");
  put(at("dead-letters"), number(state.dead_letters));
  put(at("backing-off"), number(state.backing_off) + " about to be retried");
  at("dead-letters").parentElement.classList.toggle("some", state.dead_letters > 0);

  const lanes = [...state.hottest, ...state.oldest, ...state.stuck];
  const deepest = Math.max(1, ...lanes.map((it) => it.depth));
  for (const it of lanes) {
    it.deepest = deepest;
  }
  const user = (it) => it.user;
  rows(at("stuck"), state.stuck, user, lane);
  rows(at("hottest"), state.hottest, user, lane);
  rows(at("oldest"), state.oldest, user, lane);
  put(at("stuck-count"), state.stuck_lanes > 0 ? number(state.stuck_lanes) : "");

  rows(at("letters"), state.letters, (it) => it.sequence, letter);
  put(at("letters-count"), state.dead_letters > 0 ? number(state.dead_letters) : "");
  at("redrive-all").hidden = state.dead_letters < 2;
  const more = state.dead_letters - state.letters.length;
  at("more").hidden = more <= 0;
  put(at("more"), "And " + number(Math.max(0, more)) + " more.");
}

function status(className, text) {
  at("status").className = "status " + className;
  put(at("status-text"), text);
}

async function watch() {
  try {
    const signal = AbortSignal.timeout(5000);
    const response = await fetch("/state.json", { cache: "no-store", signal });
    const answer = await response.json();
    if (!response.ok) {
      throw new Error(answer.message);
    }
    show(answer);
    status("live", "up for " + time(answer.up_ms));
  } catch (error) {
    const text = error instanceof TypeError ? "the service does not answer" : error.message;
    status("lost", text + "; asking again");
  }
  setTimeout(watch, PAUSE_MS);
}

watch();
