// Shows the feed. Names and reasons come from strangers: they become text nodes, never markup, and
// what cannot be seen in them is spelled out. One stream at a time, and none while the page is hidden.
"use strict";

const BASE = new URL(".", document.currentScript.src);
const RETRY_MS = 2000;
const LANE_MS = 1000;
const SPAN_MS = 120000;
const STUCK_MS = 10000;
const MOST_SEEN = 50;
const GROWTH_MS = 60000;

const at = (id) => document.getElementById(id);

// ---- text

// Characters that are invisible, or that turn the text around them.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/u;

function spelled(character) {
  return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

// Fills an element with a text from a stranger, of which `chars` characters exist.
function write(element, text, chars) {
  const mark = text + "\u0000" + (chars ?? "");
  if (element.written === mark) {
    return;
  }
  element.written = mark;
  const isBlank = text.trim() === "";
  const shown = document.createElement("bdi");
  let plain = "";
  for (const character of text) {
    if (isBlank || UNSEEN.test(character)) {
      shown.append(plain, make("span", "mark", spelled(character)));
      plain = "";
    } else {
      plain += character;
    }
  }
  shown.append(text === "" ? "(empty)" : plain);
  element.replaceChildren(shown);
  if (chars !== undefined && chars > Array.from(text).length) {
    element.append("… " + number(chars) + " characters");
  }
}

function put(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
    element.written = undefined;
  }
}

function make(name, className, ...children) {
  const element = document.createElement(name);
  if (className) {
    element.className = className;
  }
  element.append(...children);
  return element;
}

const number = (value) => value.toLocaleString("en-US");
const words = (name) => name.replaceAll("_", " ");

function micros(us) {
  return us < 1000 ? us + " µs" : us < 10000 ? (us / 1000).toFixed(1) + " ms" : time(us / 1000);
}

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

// Indents JSON. Its strings, numbers and names stay as they are, and so does a name that comes twice:
// parsed, a number of 64 bits would become another one.
function indented(json) {
  const pieces = [];
  let depth = 0;
  let before = "";
  const line = () => pieces.push("\n" + "  ".repeat(Math.min(depth, 64)));
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    const isEnd = token === "}" || token === "]";
    depth -= isEnd ? 1 : 0;
    if (isEnd ? before !== "{" && before !== "[" : ["{", "[", ","].includes(before)) {
      line();
    }
    depth += token === "{" || token === "[" ? 1 : 0;
    pieces.push(token === ":" ? ": " : token);
    before = token;
  }
  return pieces.join("");
}

// Makes a list show these items. A row stays the same element while its item is there, so that a
// click, and the focus, stay where they are.
function rows(list, items, keyOf, build) {
  const old = new Map(Array.from(list.children, (row) => [row.key, row]));
  let place = list.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const row = old.get(key) ?? Object.assign(build(item), { key });
    old.delete(key);
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
  const none = list.closest("section")?.querySelector(".none");
  if (none) {
    none.hidden = items.length > 0;
  }
}

// ---- requests

class Refused extends Error {
  constructor(status, answer) {
    const why = answer.why ? ": " + answer.why : "";
    super(words(answer.error) + why + ": " + answer.what_to_do);
    this.status = status;
    this.error = answer.error;
  }
}

// An action, and a list of letters, may wait for a store: the service gives it 30 seconds.
const PATIENCE_MS = 10000;
const STORE_PATIENCE_MS = 40000;

async function ask(path, body, method) {
  const patience = /^(act|letter)/.test(path) ? STORE_PATIENCE_MS : PATIENCE_MS;
  const request = { cache: "no-store", signal: AbortSignal.timeout(patience) };
  if (body !== undefined) {
    request.method = method ?? "POST";
    request.headers = { "content-type": "application/json", "x-keylane-console": "1" };
    request.body = JSON.stringify(body);
  }
  const response = await fetch(new URL(path, BASE), request);
  if (response.status === 204) {
    return null;
  }
  const answer = await response.json();
  if (!response.ok) {
    throw new Refused(response.status, answer);
  }
  return answer;
}

// What is said of an action that was refused. One without an answer goes on in the service.
function failure(name, how, error) {
  return error instanceof Refused ? name + how + error.message : name + ": no answer. It may be done: look again";
}

function status(className, text) {
  at("status").className = "status " + className;
  put(at("status-text"), text);
}

function notice(text) {
  at("notice").hidden = text === "";
  write(at("notice"), text);
}

// ---- where we are

let about = null;
let life = null;
let stream = null;
let timer = null;

// The address names the view: #overview, #lanes/<dispatcher>, #lane/<dispatcher>/<id>, #sources,
// #letters/<store>, #letter/<store>/<id>, #leaders.
function place() {
  const [view, name, id] = location.hash.slice(1).split("/").map(decoded);
  const known = ["overview", "lanes", "lane", "sources", "letters", "letter", "leaders"];
  const one = (names) => (names?.includes(name) ? name : names?.[0] ?? "");
  return {
    view: known.includes(view) ? view : "overview",
    dispatcher: one(about?.dispatchers),
    store: one(about?.letters),
    id: id ?? "",
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

function address(view, ...parts) {
  return "#" + [view, ...parts.map(encodeURIComponent)].join("/");
}

function stop() {
  stream?.close();
  stream = null;
  clearTimeout(timer);
}

function later(act, ms) {
  clearTimeout(timer);
  timer = setTimeout(act, ms);
}

// Learns what there is, and shows the place; or asks for the token.
async function start() {
  stop();
  try {
    about = await ask("about");
  } catch (error) {
    if (error.status === 401) {
      signIn();
    } else {
      lost(error);
    }
    return;
  }
  go();
}

function lost(error) {
  const isNetwork = error instanceof TypeError || error.name === "TimeoutError";
  status("lost", isNetwork ? "the service does not answer; trying again" : error.message);
  later(start, RETRY_MS);
}

function signIn() {
  stop();
  about = null;
  at("sign-out").hidden = true;
  status("", "not signed in");
  show("sign-in");
  at("token").focus();
}

function show(id) {
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = section.id !== id;
  }
}

// Shows the place. A page that only was in the background keeps the letters that it shows.
function go({ wasHidden = false } = {}) {
  stop();
  if (!about || document.hidden) {
    return;
  }
  at("sign-out").hidden = !about.has_token;
  const { view, dispatcher, store, id } = place();
  show(view);
  notice("");
  for (const link of at("nav").querySelectorAll("a")) {
    const isHere = link.hash === "#" + ({ lane: "lanes", letter: "letters" }[view] ?? view);
    link.toggleAttribute("aria-current", isHere);
    if (isHere) {
      link.setAttribute("aria-current", "page");
    }
  }
  if (view === "lanes") {
    showTools(dispatcher);
    listen("lanes?dispatcher=" + encodeURIComponent(dispatcher), showLanes);
  } else if (view === "lane") {
    at("back").href = address("lanes", dispatcher);
    openLane(dispatcher, id);
  } else if (view === "letters") {
    showStores(store);
    if (!wasHidden || !letters.isShown) {
      at("letter-filter").value = letters.filter;
      loadLetters(null);
    }
    listen("feed", showFeed);
  } else if (view === "letter") {
    at("letters-back").href = address("letters", store);
    openLetter(store, id);
    listen("feed", showFeed);
  } else {
    listen("feed", showFeed);
  }
}

function listen(path, showIt) {
  const source = new EventSource(new URL(path, BASE));
  stream = source;
  source.onmessage = (event) => {
    const frame = JSON.parse(event.data);
    remember(frame);
    status("live", "live");
    showIt(frame.body);
  };
  source.onerror = () => {
    if (stream !== source) {
      return;
    }
    status("lost", "connection lost; trying again");
    // A browser comes again by itself after a lost connection, but not after a refusal.
    if (source.readyState === EventSource.CLOSED) {
      later(start, RETRY_MS);
    }
  };
}

// ---- overview

let points = [];

function remember(frame) {
  if (life !== null && life !== frame.life) {
    points = [];
    notice("The service has started again. What is shown counts from its start.");
  }
  life = frame.life;
  // The first frame of each feed has all points that the service knows.
  const last = points.at(-1)?.up_ms ?? -1;
  points.push(...frame.points.filter((point) => point.up_ms > last));
  const newest = points.at(-1)?.up_ms ?? 0;
  points = points.filter((point) => newest - point.up_ms <= SPAN_MS);
}

// Events per second between two points, of one dispatcher.
function rate(from, to, which, kind) {
  const seconds = (to.up_ms - from.up_ms) / 1000;
  const count = to.counts[which][kind] - from.counts[which][kind];
  return seconds > 0 ? Math.max(0, count) / seconds : 0;
}

function lastRate(which, kind) {
  return points.length < 2 ? 0 : rate(points.at(-2), points.at(-1), which, kind);
}

function draw() {
  const newest = points.at(-1)?.up_ms ?? 0;
  const lines = [[], [], []];
  for (let index = 1; index < points.length; index++) {
    const [from, to] = [points[index - 1], points[index]];
    const x = 120 - (newest - to.up_ms) / 1000;
    lines.forEach((line, kind) => {
      const sum = to.counts.reduce((sum, _, which) => sum + rate(from, to, which, kind), 0);
      line.push([x, sum]);
    });
  }
  const highest = Math.max(10, ...lines.flat().map((point) => point[1]));
  lines.forEach((line, kind) => {
    const path = line.map(([x, y]) => x.toFixed(2) + " " + (97 - (94 * y) / highest).toFixed(2));
    at("line-" + kind).setAttribute("d", path.length ? "M" + path.join("L") : "");
  });
  put(at("top"), number(Math.round(highest)));
  const now = lines.map((line) => number(Math.round(line.at(-1)?.[1] ?? 0)));
  const names = ["accepted", "done", "failed attempts"];
  put(at("plot-text"), names.map((name, kind) => now[kind] + " " + name).join(", ") + " per second");
}

function tile(name) {
  const value = make("dd", "", "–");
  const note = make("dd", "note");
  const box = make("div", "", make("dt", "", name), value, note);
  box.set = (text, extra, isBad) => {
    put(value, text);
    put(note, extra);
    box.classList.toggle("bad", Boolean(isBad));
  };
  return box;
}

const REASONS = ["in_flight", "ready", "backing_off", "halted", "paused", "for_rate", "for_time", "for_batch", "for_lease", "for_store", "for_versions", "other"];
const WAITS = {
  for_rate: "wait for their rate",
  for_time: "wait for their time",
  for_batch: "wait for a batch",
  for_lease: "wait for their lease",
  for_store: "wait for the version store",
  for_versions: "wait for missing versions",
};

function dispatcherCard() {
  const name = make("h3", "name");
  const closed = make("span", "state warn", "closed");
  const link = make("a", "", "Its lanes");
  const names = ["accepted per second", "done per second", "failed attempts per second", "waiting", "room left", "in flight", "given up", "wait, median", "attempt, median"];
  const tiles = names.map(tile);
  const parts = REASONS.map((reason) => make("i", reason));
  const legend = REASONS.map((reason) => make("li", reason));
  const list = make("ul", "legend", ...legend);
  list.setAttribute("aria-label", "Lanes by what they wait for");
  const bar = make("div", "bar", ...parts);
  bar.setAttribute("aria-hidden", "true");
  const card = make("article", "card", make("div", "head", name, closed, link), make("dl", "tiles", ...tiles), bar, list);
  card.show = (it) => {
    write(name, it.name);
    closed.hidden = !it.closed;
    link.href = address("lanes", it.name);
    const rates = [0, 1, 2].map((kind) => number(Math.round(lastRate(it.index, kind))));
    tiles[0].set(rates[0], number(it.accepted) + " in all");
    tiles[1].set(rates[1], number(it.done) + " in all");
    tiles[2].set(rates[2], number(it.failures) + " in all", rates[2] !== "0");
    tiles[3].set(number(it.waiting), "in " + number(it.lanes) + (it.lanes === 1 ? " lane" : " lanes"));
    tiles[4].set(number(it.capacity_left), number(it.full_lanes) + (it.full_lanes === 1 ? " lane is full" : " lanes are full"), it.capacity_left === 0);
    tiles[5].set(number(it.reasons.in_flight), "of " + number(it.concurrency_limit) + " at most");
    const lostOnes = it.dead_lettered + it.discarded + it.expired;
    tiles[6].set(number(lostOnes), number(it.dead_lettered) + " dead letters", lostOnes > 0);
    [it.times.wait, it.times.attempt].forEach((times, index) => {
      const note = times && "90 % " + micros(times.p90_us) + ", 99 % " + micros(times.p99_us) + ", most " + micros(times.most_us);
      tiles[7 + index].set(times ? micros(times.p50_us) : "–", note ?? "of the last 10 s: none");
    });
    REASONS.forEach((reason, index) => {
      const count = it.reasons[reason];
      const share = it.lanes === 0 ? 0 : (100 * count) / it.lanes;
      parts[index].style.width = share + "%";
      legend[index].hidden = reason in WAITS && count === 0;
      put(legend[index], (WAITS[reason] ?? words(reason)) + " " + number(count) + " (" + share.toFixed(share > 0 && share < 1 ? 1 : 0) + " %)");
      legend[index].classList.toggle("alarm", count > 0 && (reason === "halted" || reason === "paused"));
    });
  };
  return card;
}

function showFeed(body) {
  const indexed = body.dispatchers.map((it, index) => ({ ...it, index }));
  rows(at("dispatchers"), indexed, (it) => it.name, dispatcherCard);
  rows(at("intakes"), body.intakes, (it) => it.name, intakeCard);
  rows(at("leases"), body.leases, (it) => it.name, leasesCard);
  rows(at("elections"), body.leaders, (it) => it.name, leaderCard);
  at("leaders").querySelector(".none").hidden = body.leaders.length + body.leases.length > 0;
  showJob(body.letters.find((it) => it.name === place().store)?.job ?? null);
  draw();
  status("live", "up for " + time(body.up_ms));
}

// ---- sources

function intakeCard() {
  const name = make("h3", "name");
  const state = make("span", "state");
  const names = ["received", "acked", "dead letters", "nacked", "given back", "held", "beside full lanes", "deferred", "stale", "restarts"];
  const tiles = names.map(tile);
  const error = make("p", "why");
  const hold = holdBar();
  const parts = make("ul", "parts");
  const lags = partsTable();
  const card = make("article", "card", make("div", "head", name, state), make("dl", "tiles", ...tiles), hold, error, parts, lags);
  card.show = (it) => {
    write(name, it.name);
    state.className = "state " + (it.state === "running" ? "" : "warn");
    put(state, it.state);
    const values = [it.received, it.acked, it.dead_lettered, it.nacked, it.given_back, it.held, it.aside, it.deferred, it.stale, it.restarts];
    const notes = {
      1: it.unconfirmed > 0 ? number(it.unconfirmed) + " not confirmed" : "",
      5: it.held_bytes > 0 ? number(Math.ceil(it.held_bytes / 1024)) + " KiB" : "",
    };
    values.forEach((value, index) => {
      const isBad = (index === 2 || index === 9) && value > 0;
      tiles[index].set(number(value), notes[index] ?? "", isBad);
    });
    hold.show(it.hold);
    error.hidden = it.last_error === null;
    write(error, "last error: " + (it.last_error ?? ""));
    const failed = it.failed_parts.map((part) => {
      const item = make("li", "");
      write(item, part.part + " fails, " + number(part.times) + " times: " + part.why);
      return item;
    });
    if (it.more_parts > 0) {
      failed.push(make("li", "", "and " + number(it.more_parts) + " more parts"));
    }
    parts.replaceChildren(...failed);
    lags.show(it);
  };
  return card;
}

// For how long the messages are held: the time that is left, as text and as a bar.
function holdBar() {
  const text = make("p", "soft");
  const fill = make("i", "");
  const bar = make("div", "bar", fill);
  bar.setAttribute("aria-hidden", "true");
  const box = make("div", "hold", text, bar);
  box.show = (it) => {
    box.hidden = it === undefined;
    if (it === undefined) {
      return;
    }
    const left = it.left_ms > 0 ? time(it.left_ms) + " left" : "over: other processes may have the messages";
    const extended = it.extended_ms === undefined ? "" : ", last extended " + time(it.extended_ms) + " ago";
    put(text, "messages are held for " + time(it.lasts_ms) + extended + ": " + left);
    box.classList.toggle("over", it.left_ms === 0);
    fill.style.width = (100 * Math.min(it.left_ms, it.lasts_ms)) / Math.max(1, it.lasts_ms) + "%";
  };
  return box;
}

// The parts of a source. As they come, those in trouble are first, and then the lag decides.
const PART_HEADS = { name: "Part", lag: "Lag", held: "Held", beyond: "Settled above", frontier: "Frontier" };

function partsTable() {
  let by = "";
  let last = null;
  const heads = Object.entries(PART_HEADS).map(([field, text]) => {
    const button = make("button", "", text);
    button.type = "button";
    button.dataset.by = field;
    button.onclick = () => {
      by = by === field ? "" : field;
      table.show(last);
    };
    return button;
  });
  const caption = make("caption", "");
  const [table, body] = tableOf(caption, heads);
  table.classList.add("lags");
  table.show = (it) => {
    last = it;
    table.hidden = it.parts.length === 0;
    for (const button of heads) {
      const isBy = button.dataset.by === by;
      button.closest("th").toggleAttribute("aria-sort", isBy);
      if (isBy) {
        button.closest("th").setAttribute("aria-sort", by === "name" ? "ascending" : "descending");
      }
    }
    const parts = [...it.parts];
    if (by === "name") {
      parts.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    } else if (by === "frontier") {
      parts.sort((a, b) => (b.frontier ?? "").localeCompare(a.frontier ?? "", "en", { numeric: true }));
    } else if (by !== "") {
      parts.sort((a, b) => (b[by] ?? -1) - (a[by] ?? -1));
    }
    const more = it.other_parts > 0 ? ", and " + number(it.other_parts) + " more" : "";
    put(caption, number(parts.length) + (parts.length === 1 ? " part" : " parts") + more + (by === "" ? ": those in trouble first, then by their lag" : ""));
    const most = Math.max(1, ...parts.map((part) => part.lag ?? 0));
    const times = new Map();
    const items = parts.map((part) => {
      times.set(part.name, (times.get(part.name) ?? 0) + 1);
      return { ...part, most, key: times.get(part.name) + "/" + part.name };
    });
    rows(body, items, (it) => it.key, partRow);
  };
  return table;
}

function partRow() {
  const name = make("span", "name");
  const paused = make("span", "state warn", "paused");
  const trouble = make("div", "trouble");
  const holder = make("a", "");
  const heldBy = make("div", "held-by", "held back by ", holder);
  const fill = make("i", "");
  const bar = make("div", "bar", fill);
  bar.setAttribute("aria-hidden", "true");
  const lag = make("span", "");
  const frontier = make("span", "");
  const figures = { held: "held", beyond: "settled above" };
  const cells = Object.entries(figures).map(([field, label]) => [field, cell("", label)]);
  const notes = make("div", "");
  const first = cell("", "", name, " ", paused, notes);
  const row = make(
    "tr",
    "",
    first,
    cell("", "lag", lag, bar),
    ...cells.map(([, shown]) => shown),
    cell("", "frontier", frontier),
  );
  row.setAttribute("role", "row");
  row.show = (part) => {
    write(name, part.name);
    paused.hidden = !part.is_paused;
    for (const [note, isThere] of [[trouble, part.trouble !== null], [heldBy, part.held_by !== undefined]]) {
      if (!isThere) {
        note.remove();
      } else if (note.parentNode === null) {
        notes.append(note);
      }
    }
    write(trouble, part.trouble ?? "");
    if (part.held_by !== undefined) {
      write(holder, part.held_by.key, part.held_by.key_chars);
      holder.href = address("lane", part.held_by.dispatcher, part.held_by.id);
    }
    put(lag, part.lag === null ? "unknown" : number(part.lag));
    fill.style.width = (100 * (part.lag ?? 0)) / part.most + "%";
    for (const [field, shown] of cells) {
      put(shown, number(part[field]));
    }
    write(frontier, part.frontier ?? "–");
  };
  return row;
}

// ---- leaders

function leaderCard() {
  const name = make("h3", "name");
  const state = make("span", "state");
  const leader = make("dd", "name");
  const token = make("dd", "");
  const facts = make("dl", "facts", make("div", "", make("dt", "", "leader"), leader), make("div", "", make("dt", "", "fencing token of the term"), token));
  const card = make("article", "card", make("div", "head", name, state), facts);
  card.show = (it) => {
    write(name, it.name);
    const isLed = it.leader !== null && !it.is_leaving;
    state.className = "state " + (isLed ? "" : "warn");
    put(state, it.leader === null ? "no leader is known" : it.is_leaving ? "is leaving" : "leads");
    write(leader, it.leader ?? "–");
    put(token, it.token ?? "–");
  };
  return card;
}

// A table with these heads, as screen readers and narrow views need it.
function tableOf(caption, heads) {
  const head = make("tr", "", ...heads.map((it) => columnHead(it)));
  head.setAttribute("role", "row");
  const thead = make("thead", "", head);
  const body = make("tbody", "");
  const table = make("table", "", caption, thead, body);
  table.setAttribute("role", "table");
  for (const group of [thead, body]) {
    group.setAttribute("role", "rowgroup");
  }
  return [table, body];
}

function columnHead(content) {
  const head = make("th", "", content);
  head.scope = "col";
  head.setAttribute("role", "columnheader");
  return head;
}

function leasesCard() {
  const name = make("h3", "name");
  const state = make("span", "state warn", "closed");
  const owner = make("p", "soft");
  const names = ["held or asked for", "room left", "waited for", "granted", "taken elsewhere", "lost", "failed calls"];
  const tiles = names.map(tile);
  const caption = make("caption", "");
  const [table, body] = tableOf(caption, ["Key", "Token", "Time to live", "Ends, if not renewed"]);
  const card = make("article", "card", make("div", "head", name, state), owner, make("dl", "tiles", ...tiles), table);
  card.show = (it) => {
    write(name, it.name);
    state.hidden = !it.is_closed;
    write(owner, "owner " + it.owner);
    const lost = it.ran_out + it.taken_over;
    const values = [it.held, it.room, it.waiting, it.granted, it.taken, lost, it.failed_calls];
    values.forEach((value, index) => {
      const note = index === 5 && lost > 0 ? number(it.ran_out) + " ran out, " + number(it.taken_over) + " taken over" : "";
      tiles[index].set(number(value), note, index > 4 && value > 0);
    });
    put(caption, it.leases.length === 0 ? "No lease is held." : number(it.leases.length) + " of " + number(it.held) + ", those that end first");
    body.replaceChildren(...it.leases.map(leaseRow));
  };
  return card;
}

function leaseRow(it) {
  const key = make("span", "name");
  write(key, it.key, it.key_chars);
  const row = make("tr", "", cell("", "", key), cell("", "token", it.token), cell("", "time to live", time(it.ttl_ms)), cell("", "ends in", time(it.left_ms)));
  row.setAttribute("role", "row");
  return row;
}

// ---- dead letters

let letters = { store: "", filter: "", next: null, isShown: false };
let letter = null;
let loading = 0;
let job = null;

function maySend(action) {
  return about.actions.includes(action);
}

function showStores(store) {
  at("letter-tools").hidden = about.letters.length === 0;
  at("store").replaceChildren(...about.letters.map((name) => new Option(name, name, false, name === store)));
  at("store-field").hidden = about.letters.length < 2;
  at("redrive-all").hidden = !maySend("redrive_letters");
  at("purge-all").hidden = !maySend("purge_letters");
  if (letters.store !== store) {
    letters = { store, filter: "", next: null, isShown: false };
    job = null;
  }
}

async function loadLetters(after) {
  const mine = ++loading;
  const { store } = letters;
  if (store === "") {
    rows(at("letter-rows"), [], (it) => it.id, letterCard);
    at("letters-next").hidden = true;
    return;
  }
  const query = { name: store, filter: letters.filter, ...(after === null ? {} : { after }) };
  try {
    const page = await ask("letters?" + new URLSearchParams(query));
    if (mine !== loading) {
      return;
    }
    letters.next = page.next;
    letters.isShown = true;
    const isPart = page.next !== null && page.letters.length === 0;
    put(at("letters-none"), isPart ? "Looked at " + number(page.looked_at) + " letters, and the filter chooses none of them: go on with the next page." : "No letter to show.");
    rows(at("letter-rows"), page.letters, (it) => it.id, letterCard);
    at("letters-next").hidden = page.next === null;
  } catch (error) {
    if (mine === loading) {
      notice("The letters were not read: " + error.message);
    }
  }
}

function letterWhen(it) {
  return it.at_ms === null ? "" : new Date(it.at_ms).toLocaleString();
}

function attempts(count) {
  return number(count) + (count === 1 ? " attempt" : " attempts");
}

function letterCard() {
  const link = make("a", "name");
  const state = make("span", "state bad");
  const facts = make("span", "soft");
  const error = make("p", "why");
  const payload = make("p", "why");
  const card = make("li", "card", make("div", "head", link, state, facts), error, payload);
  card.show = (it) => {
    write(link, it.key ?? "(no key)", it.key_chars ?? undefined);
    link.href = address("letter", letters.store, it.id);
    put(state, it.cause);
    put(facts, [attempts(it.attempts), letterWhen(it), cutBytes(it.payload)].filter(Boolean).join(", "));
    write(error, it.error, it.error_chars);
    write(payload, it.payload.shown);
  };
  return card;
}

// Says how much of a payload is not shown.
function cutBytes(payload) {
  return payload.shown_bytes < payload.bytes ? "the first " + number(payload.shown_bytes) + " of " + number(payload.bytes) + " bytes" : "";
}

async function openLetter(store, id) {
  const mine = ++loading;
  letter = { store, id };
  letters.store = store;
  put(at("letter-acted"), "");
  // Nothing is done to a letter that is not shown.
  at("redrive-one").hidden = at("purge-one").hidden = true;
  try {
    const it = await ask("letter?" + new URLSearchParams({ name: store, id }));
    if (mine === loading) {
      showLetter(it);
    }
  } catch (error) {
    if (mine === loading) {
      notice("The letter was not read: " + error.message);
    }
  }
}

function showLetter(it) {
  at("redrive-one").hidden = !maySend("redrive_letters");
  at("purge-one").hidden = !maySend("purge_letters");
  write(at("letter-key"), it.key ?? "(no key)", it.key_chars ?? undefined);
  const cause = make("span", "state bad", it.cause);
  const payload = it.payload;
  at("letter-facts").replaceChildren(
    fact("store", letter.store),
    fact("id", it.id),
    fact("cause", cause),
    fact("attempts", number(it.attempts)),
    fact("since", letterWhen(it) || "–"),
    fact("bytes", number(payload.bytes)),
  );
  write(at("letter-error"), it.error, it.error_chars);
  put(at("letter-form-name"), [payload.form, cutBytes(payload)].filter(Boolean).join(", "));
  const text = payload.form === "json" ? indented(payload.shown) : payload.shown;
  // Line ends are shown as such here.
  const lines = text.split("\n").flatMap((line, index) => {
    const end = index === 0 ? [] : ["\n"];
    if (line === "") {
      return end;
    }
    const shown = make("span", "");
    write(shown, line);
    return [...end, shown];
  });
  at("letter-payload").replaceChildren(...(text === "" ? ["(empty)"] : lines));
  const headers = it.headers.map(([name, value], index) => {
    const [dt, dd] = [make("dt", ""), make("dd", "")];
    const [nameChars, valueChars] = it.header_chars[index];
    write(dt, name, nameChars);
    write(dd, value, valueChars);
    return make("div", "", dt, dd);
  });
  if (it.more_headers > 0) {
    headers.push(fact("not shown", number(it.more_headers) + (it.more_headers === 1 ? " more header" : " more headers")));
  }
  at("letter-headers").replaceChildren(...headers);
  at("letter-no-headers").hidden = headers.length > 0;
}

const LETTER_ACTIONS = {
  redrive_letters: ["Redrive", "Handled again. A message of the same key that is being handled is not interrupted."],
  purge_letters: ["Purge", "Lost for ever. This cannot be undone."],
};

async function actOnLetters(action, which, said) {
  const [name, effect] = LETTER_ACTIONS[action];
  const store = letters.store;
  const whole = which.ids ? "This letter" : which.filter === "" ? "All letters" : "All letters with " + which.filter;
  const text = make("span", "name");
  write(text, whole + " of " + store + ": " + effect.charAt(0).toLowerCase() + effect.slice(1));
  if (!(await asked(name, [text]))) {
    return;
  }
  try {
    const answer = await ask("letters/act", { name: store, action, ...which });
    said.className = "acted";
    put(said, answer.letters === null ? name + " has begun." : name + " is done: " + number(answer.letters) + (answer.letters === 1 ? " letter." : " letters."));
  } catch (error) {
    said.className = "acted bad";
    // Some letters may be done.
    write(said, failure(name, " failed: ", error));
  }
}

// The job of this store, as the feed has it.
function showJob(now) {
  const runs = (it) => it !== null && (it.state === "running" || it.state === "stopping");
  const hasEnded = runs(job) && !runs(now);
  const isNew = JSON.stringify(now) !== JSON.stringify(job);
  job = now;
  at("job-stop").hidden = !runs(now);
  at("job-progress").hidden = !runs(now);
  at("redrive-all").disabled = runs(now);
  at("purge-all").disabled = runs(now);
  if (now !== null && isNew) {
    const name = LETTER_ACTIONS[now.action][0];
    const filter = now.filter === "" ? "" : " of letters with " + now.filter;
    const why = now.why === "" ? "" : ": " + now.why;
    at("job").className = now.state === "failed" ? "acted bad" : "acted";
    write(at("job"), name + filter + " is " + now.state + ": " + number(now.done) + " of " + number(now.seen) + " that it has looked at" + why);
  }
  if (hasEnded && place().view === "letters") {
    loadLetters(null);
  }
}

// ---- lanes

let sort = "age_ms";
let lanes = { all: 0, lanes: [] };

const FAILING = ["backoff", "dead_lettering", "halted"];
const FILTERS = {
  all: () => true,
  stuck: (it) => (it.ran_ms ?? 0) >= STUCK_MS,
  failing: (it) => FAILING.includes(it.state),
  halted: (it) => it.state === "halted" || (it.state === "gap" && it.due_ms === undefined),
  paused: (it) => it.state === "paused",
  full: (it) => it.full,
  leasing: (it) => it.state === "leasing",
  leased: (it) => it.lease !== undefined,
};

function kindOf(it) {
  if (FAILING.includes(it.state)) {
    return "bad";
  }
  return it.state === "paused" || it.state === "gap" || it.full || FILTERS.stuck(it) ? "warn" : "";
}

function showTools(dispatcher) {
  const which = at("which");
  const options = about.dispatchers.map((name) => new Option(name, name, false, name === dispatcher));
  which.replaceChildren(...options);
  at("which-field").hidden = options.length < 2;
  if (lanes.dispatcher !== dispatcher) {
    lanes = { dispatcher, all: 0, lanes: [] };
    showList();
  }
}

function showLanes(body) {
  lanes = body;
  showList();
}

function showList() {
  for (const button of document.querySelectorAll("#table th button")) {
    const head = button.closest("th");
    if (button.dataset.sort === sort) {
      head.setAttribute("aria-sort", "descending");
    } else {
      head.removeAttribute("aria-sort");
    }
  }
  const shown = lanes.lanes.filter(FILTERS[at("filter").value]);
  shown.sort((a, b) => b[sort] - a[sort] || b.age_ms - a.age_ms || (a.id < b.id ? -1 : 1));
  rows(at("rows"), shown, (it) => it.id, laneRow);
  const of = number(lanes.all) + (lanes.all === 1 ? " lane" : " lanes");
  put(at("caption"), number(shown.length) + " of " + of + ": the oldest, the deepest and the busiest. Any other is found by its key.");
}

// What is behind its state: attempt and times.
function details(it) {
  const parts = [];
  if (it.ran_ms !== undefined) {
    parts.push("attempt " + it.attempt + " has run for " + time(it.ran_ms));
  } else if (it.state === "backoff") {
    parts.push("attempt " + it.attempt + " in " + time(it.due_ms));
  } else if (it.state === "dead_lettering") {
    parts.push("the sink has refused " + it.attempt + " times, again in " + time(it.due_ms));
  } else if (it.state === "halted") {
    parts.push("after " + it.attempt + (it.attempt === 1 ? " attempt" : " attempts"));
  } else if (it.due_ms !== undefined) {
    parts.push("at most " + time(it.due_ms) + " more");
  }
  if (it.full) {
    parts.push("the lane is full");
  }
  if (it.lease !== undefined) {
    parts.push("the lease is held here, token " + it.lease);
  }
  if (it.why) {
    parts.push(it.why);
  }
  return parts.join("; ");
}

function cell(className, label, ...children) {
  const element = make("td", className, ...children);
  element.setAttribute("role", "cell");
  if (label) {
    element.dataset.label = label;
  }
  return element;
}

function laneRow() {
  const link = make("a", "name");
  const state = make("span", "state");
  const depth = make("span", "");
  const age = make("span", "");
  const busy = make("span", "");
  const why = make("span", "why");
  const ends = make("span", "ends");
  const row = make(
    "tr",
    "",
    cell("", "", link),
    cell("", "", state),
    cell("number", "depth", depth),
    cell("number", "oldest", age),
    cell("number", "busy", busy),
    cell("", "", ends, why),
  );
  row.setAttribute("role", "row");
  row.show = (it) => {
    write(link, it.key, it.key_chars);
    link.href = address("lane", lanes.dispatcher, it.id);
    state.className = "state " + kindOf(it);
    put(state, words(it.state));
    put(depth, number(it.depth));
    put(age, time(it.age_ms));
    put(busy, time(it.busy_ms));
    put(ends, "ends with " + it.ends);
    const text = details(it);
    why.hidden = text === "";
    write(why, text);
  };
  return row;
}

async function search(event) {
  event.preventDefault();
  const { dispatcher } = place();
  try {
    const found = await ask("find", { dispatcher, key: at("key").value });
    location.hash = address("lane", dispatcher, found.id);
  } catch (error) {
    notice("Not found: " + error.message);
  }
}

// ---- one lane

let lane = null;
let shownActions = "";
let laneKey = null;
let seen = "";
let depths = [];

function openLane(dispatcher, id) {
  if (lane?.dispatcher !== dispatcher || lane?.id !== id) {
    at("timeline").replaceChildren();
    at("facts").replaceChildren();
    at("messages").replaceChildren();
    at("failed").replaceChildren();
    put(at("lane-why"), "");
    put(at("acted"), "");
    at("lane-key").replaceChildren();
    at("lane-key").written = undefined;
    seen = "";
    laneKey = null;
    depths = [];
  }
  lane = { dispatcher, id };
  showActions();
  look();
}

const ACTIONS = {
  pause: ["Pause", "Nothing of this key starts until it is resumed. Messages still come in."],
  resume: ["Resume", "A paused lane goes on; a halted message is tried again from attempt 1."],
  retry_now: ["Retry now", "The message that waits for its next attempt is tried at once."],
  skip: ["Skip", "The first message settles as failed, and the next one goes on. This cannot be undone."],
  purge: ["Purge", "All messages of this key that are not in flight are lost. This cannot be undone."],
  replace: ["Replace", "The first message becomes the one below, and is tried from attempt 1. The old one is lost."],
};

function showActions() {
  const decodes = about.decoding.includes(lane.dispatcher);
  const known = about.actions.filter((action) => action in ACTIONS && (action !== "replace" || decodes));
  at("read-only").hidden = known.length > 0;
  const buttons = known.map((action) => {
    const isFinal = ["skip", "purge", "replace"].includes(action);
    const button = make("button", isFinal ? "danger" : "", ACTIONS[action][0]);
    button.type = "button";
    button.dataset.action = action;
    button.onclick = () => act(action);
    return button;
  });
  if (shownActions !== known.join()) {
    shownActions = known.join();
    at("actions").replaceChildren(...buttons);
  }
}

async function look() {
  const mine = lane;
  try {
    const path = "lane?dispatcher=" + encodeURIComponent(mine.dispatcher) + "&id=" + encodeURIComponent(mine.id);
    const it = await ask(path);
    if (mine !== lane || place().view !== "lane") {
      return;
    }
    status("live", "live");
    notice("");
    showLane(it);
  } catch (error) {
    if (mine !== lane || place().view !== "lane") {
      return;
    }
    if (error.status === 404) {
      await searchAgain(mine);
      return;
    }
    if (error.status === 401) {
      signIn();
      return;
    }
    const isNetwork = !(error instanceof Refused);
    status("lost", isNetwork ? "the service does not answer; trying again" : error.message);
  }
  if (mine === lane && place().view === "lane" && !document.hidden) {
    later(look, LANE_MS);
  }
}

// Ids end with the process. A key that is known in full is searched for again.
async function searchAgain(mine) {
  try {
    if (laneKey !== null) {
      const found = await ask("find", { dispatcher: mine.dispatcher, key: laneKey });
      history.replaceState(null, "", address("lane", mine.dispatcher, found.id));
      lane = { dispatcher: mine.dispatcher, id: found.id };
      // Those of the process before are no beginning of this one.
      depths = [];
      later(look, 0);
      return;
    }
  } catch {
    // Said below.
  }
  status("live", "live");
  notice("This lane is not known any more: search for its key again.");
}

function fact(name, value) {
  return make("div", "", make("dt", "", name), make("dd", "", value));
}

// Who has the lease that is not held here; where it is needed, also that none has it.
function holderFacts(it) {
  if (it.holder === undefined) {
    return it.state === "leasing" ? [fact("lease", "free, or its holder is not known")] : [];
  }
  const text = make("span", "name");
  const age = it.holder.age_ms;
  const asked = age === undefined ? [] : [fact("the leases were asked", time(age) + " ago")];
  if (it.holder.why !== undefined) {
    write(text, it.holder.why);
    return [fact("holder of the lease not known", text), ...asked];
  }
  if (it.holder.owner === undefined) {
    return [fact("lease", "free, or its holder is not known"), ...asked];
  }
  write(text, it.holder.owner);
  const most = it.holder.lasts_ms === undefined ? null : time(it.holder.lasts_ms);
  const later = most === null ? "" : ", at most " + most + " later";
  return [
    fact("lease held by", text),
    fact("token of that lease", it.holder.token),
    it.holder.ends_with_session
      ? fact("ends with its session", "when its process is gone" + later)
      : fact("lasts at most, if not renewed", most ?? "not known"),
    ...asked,
  ];
}

// Arrivals less completions, since the oldest look of the last minute. A page in the background does
// not look.
function growthFact(it) {
  const now = performance.now();
  depths = [...depths.filter((look) => now - look.at <= GROWTH_MS), { at: now, depth: it.depth }];
  const change = it.depth - depths[0].depth;
  const more = change < 0 ? number(-change) + " fewer" : number(change) + " more";
  const since = depths.length === 1 ? "–" : (change === 0 ? "none" : more) + " in " + time(now - depths[0].at);
  return fact("arrivals less completions", since);
}

// The parts of sources that have a message of this lane at their frontier.
function heldParts(it) {
  const parts = it.holds_back.map(({ intake, part }) => {
    const text = make("span", "name");
    write(text, part + " of " + intake);
    return fact("holds back", text);
  });
  return it.more_held > 0 ? [...parts, fact("holds back", number(it.more_held) + " more")] : parts;
}

function showLane(it) {
  const isWhole = it.key_chars === Array.from(it.key).length;
  laneKey = isWhole ? it.key : null;
  write(at("lane-key"), it.key, it.key_chars);
  const state = make("span", "state " + kindOf(it), words(it.state));
  at("facts").replaceChildren(
    fact("dispatcher", lane.dispatcher),
    fact("state", state),
    fact("depth", number(it.depth)),
    growthFact(it),
    fact("oldest message", it.depth === 0 ? "–" : time(it.age_ms)),
    fact("ends with", it.ends),
    ...(it.lease === undefined ? [] : [fact("lease held here, token", it.lease)]),
    ...holderFacts(it),
    ...heldParts(it),
  );
  showMessages(it);
  write(at("lane-why"), details(it));
  const now = [it.state, it.attempt ?? "", it.why ?? ""].join("\u0000");
  if (now !== seen) {
    seen = now;
    const when = make("time", "", new Date().toLocaleTimeString());
    const what = make("span", "");
    const attempt = it.attempt === undefined ? "" : ", attempt " + it.attempt;
    write(what, words(it.state) + attempt + (it.why ? ": " + it.why : ""));
    at("timeline").prepend(make("li", "", when, what));
    while (at("timeline").childElementCount > MOST_SEEN) {
      at("timeline").lastElementChild.remove();
    }
  }
}

function showMessages(it) {
  const messages = it.messages.map((message) => {
    const facts = [];
    if (message.is_head) {
      facts.push("the head");
    }
    if (message.version !== undefined) {
      facts.push("version " + message.version);
    }
    if (message.position !== undefined) {
      facts.push("at " + message.position + " of " + message.source);
    }
    const what = make("span", "");
    write(what, ["message " + message.id, ...facts].join(", "));
    return make("li", "", make("time", "", time(message.age_ms) + " old"), what);
  });
  at("messages").replaceChildren(...messages);
  const others = it.depth - messages.length;
  const note = others > 0 ? number(others) + (others === 1 ? " more message" : " more messages") + ", or on the way to a runner" : it.depth === 0 ? "There are none." : "";
  put(at("messages-note"), note);
  const failed = it.failed.map((attempt) => {
    const what = make("span", "");
    write(what, "attempt " + attempt.attempt + ": " + attempt.why);
    return make("li", "", make("time", "", time(attempt.ago_ms) + " ago"), what);
  });
  at("failed").replaceChildren(...failed);
  at("failed-none").hidden = failed.length > 0;
}

function confirmed(action) {
  const [name, effect] = ACTIONS[action];
  const key = make("span", "name");
  write(key, at("lane-key").textContent);
  return asked(name, ["Lane ", key, " of " + lane.dispatcher + ". " + effect], action === "replace");
}

// Asks once. Escape and Cancel are no.
function asked(name, text, hasMessage) {
  put(at("ask-title"), name + "?");
  at("ask-text").replaceChildren(...text);
  at("ask-message-field").hidden = !hasMessage;
  at("ask-message").value = "";
  put(at("ask-yes"), name);
  const dialog = at("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function act(action) {
  const mine = lane;
  if (!(await confirmed(action))) {
    return;
  }
  const acted = at("acted");
  try {
    const message = action === "replace" ? { message: at("ask-message").value } : {};
    const answer = await ask("act", { ...mine, action, ...message });
    const purged = answer.purged === null ? "" : ": " + number(answer.purged) + " messages";
    acted.className = "acted";
    put(acted, ACTIONS[action][0] + " is done" + purged + ".");
  } catch (error) {
    acted.className = "acted bad";
    write(acted, failure(ACTIONS[action][0], " did nothing: ", error));
  }
  later(look, 0);
}

// ---- start

at("which").onchange = (event) => {
  location.hash = address("lanes", event.target.value);
};
at("filter").onchange = showList;
at("store").onchange = (event) => {
  location.hash = address("letters", event.target.value);
};
at("letter-form").onsubmit = (event) => {
  event.preventDefault();
  letters.filter = at("letter-filter").value.trim();
  loadLetters(null);
};
at("letters-first").onclick = () => loadLetters(null);
at("letters-next").onclick = () => loadLetters(letters.next);
at("redrive-all").onclick = () => actOnLetters("redrive_letters", { filter: letters.filter }, at("job"));
at("purge-all").onclick = () => actOnLetters("purge_letters", { filter: letters.filter }, at("job"));
at("redrive-one").onclick = () => actOnLetters("redrive_letters", { ids: [letter.id] }, at("letter-acted"));
at("purge-one").onclick = () => actOnLetters("purge_letters", { ids: [letter.id] }, at("letter-acted"));
at("job-stop").onclick = async () => {
  const text = make("span", "name");
  write(text, "The job over the letters of " + letters.store + ". What it has done stays done.");
  if (!(await asked("Stop", [text]))) {
    return;
  }
  try {
    await ask("letters/stop", { name: letters.store });
  } catch (error) {
    notice("Not stopped: " + error.message);
  }
};
at("search").onsubmit = search;
for (const button of document.querySelectorAll("th button")) {
  button.onclick = () => {
    sort = button.dataset.sort;
    showList();
  };
}
at("sign-in-form").onsubmit = async (event) => {
  event.preventDefault();
  try {
    await ask("session", { token: at("token").value });
    at("token").value = "";
    notice("");
    start();
  } catch (error) {
    notice("Not signed in: " + error.message);
  }
};
at("sign-out").onclick = async () => {
  try {
    await ask("session", {}, "DELETE");
    // What was shown is not for the one who sits here next.
    location.reload();
  } catch (error) {
    notice("Not signed out: " + error.message);
  }
};
window.addEventListener("hashchange", () => {
  go();
  at("main").focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => go({ wasHidden: true }));
start();
