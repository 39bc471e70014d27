// The page of a task. The server rendered it as of one entry of the log; this follows the log from there, so that a reload at
// any moment loses no entry. Streamed text is added at once; about once a second the rendered page is asked for again.

import { Composer, call, logIn } from "./composer.js";
import { copyButtons, requestOf } from "./snippets.js";
import { build, clean, element } from "./tree.js";

const live = document.getElementById("live");
const link = document.getElementById("link");
const rows = document.getElementById("rows");
const { task: url, query } = live.dataset;
// A large page takes long to render, and is asked for less often.
const REFRESH = 1000;
const SHARE = 5;
const HIDDEN = 30_000;
const QUIET = 4_000;

let seen = Number(live.dataset.version);
let ended = Boolean(live.dataset.terminal);
let pending = [];
let timer = null;
let refreshed = 0;
let interval = REFRESH;
let shown = "";
let stream = null;
let generation = 0;

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const address = (view, parameters) =>
  `${url}/${view}${query || "?"}${query ? "&" : ""}${new URLSearchParams(parameters)}`;

function say(text) {
  if (link.textContent !== text) link.textContent = text;
}

function append(row) {
  if (!row.text) return;
  const turn = [...live.querySelectorAll("[data-artifact]")].find((one) => one.dataset.artifact === row.artifact);
  const body = turn?.querySelector(".body");
  if (!body) return;
  let tail = body.querySelector(".tail");
  if (!tail) {
    // Rendered text has lost the blank at its end.
    tail = element("span", "tail", turn.dataset.blank ? " " : "");
    const last = body.querySelector(".prose:last-of-type > p:last-child");
    (last ?? body).append(tail);
  }
  tail.append(row.text);
}

function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${(bytes / 1000).toFixed(1)} KB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

function tableRow(number, time, what, bytes, text) {
  const line = element("tr");
  const details = element("details");
  const json = element("pre", "", text);
  json.tabIndex = 0;
  details.append(element("summary", "", "Show"), json);
  const cells = [
    element("td", "number", number),
    element("td", "", time),
    element("td", "", what),
    element("td", "number", size(bytes)),
    element("td"),
  ];
  cells[4].append(details);
  line.append(...cells);
  return line;
}

function addRow(row) {
  document.getElementById("log-count").textContent = row.n;
  if (!live.dataset.follows) return;
  rows.append(tableRow(row.n, row.time, `${row.kind} ${row.state}`, row.size, row.json));
}

const parse = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null; // cut, because it is long
  }
};

let commands = JSON.parse(rows.dataset.commands);
// The server decides which requests go to the agent's own origin: a card may name others.
const credentialsOf = ({ at_home: atHome }) => (atHome ? commands.credentials : []);

// The commands of a row are made when it is opened.
rows.addEventListener(
  "toggle",
  ({ target }) => {
    target.querySelector("p.row.soft")?.remove();
    if (!target.open || target.querySelector(".row")) return;
    const request = requestOf(parse(target.querySelector("pre").textContent), commands);
    if (request) target.append(copyButtons(element, request, credentialsOf(commands)));
    else target.append(element("p", "row soft", commands.instead));
  },
  true,
);

const frames = document.getElementById("frames");
const known = frames ? JSON.parse(frames.dataset.frames) : [];
frames?.addEventListener(
  "toggle",
  ({ target }) => {
    if (!target.open || target.querySelector("button")) return;
    const place = [...frames.rows].indexOf(target.closest("tr"));
    // An answer has the commands of the request before it.
    const sent = known.slice(0, place + 1).findLast((frame) => frame.sent);
    if (!sent?.whole) return;
    const request = { method: sent.method, url: sent.url, headers: sent.headers, json: parse(sent.json) ?? undefined };
    target.append(copyButtons(element, request, credentialsOf(sent)));
  },
  true,
);

async function readFrames() {
  if (!frames) return;
  const response = await fetch(address("frames", { after: known.at(-1)?.n ?? 0 }));
  if (!response.ok) return;
  for (const frame of (await response.json()).frames) {
    if (frame.n <= (known.at(-1)?.n ?? 0)) continue;
    known.push(frame);
    frames.append(tableRow(frame.n, frame.time, `${frame.sent ? "sent" : "received"} ${frame.what}`, frame.size, frame.json));
  }
  document.getElementById("frame-count").textContent = known.length;
}

function take(row) {
  if (row.n <= seen) return;
  seen = row.n;
  pending.push(row);
  append(row);
  addRow(row);
  schedule();
}

function schedule() {
  if (timer === null) timer = setTimeout(refresh, Math.max(120, refreshed + interval - Date.now()));
}

// What is open, selected or played stays as it is where nothing has changed.
function replace(tree, same) {
  const text = JSON.stringify(tree);
  if (same || text === shown) return false;
  shown = text;
  const focused = live.contains(document.activeElement);
  live.replaceChildren(...tree.slice(2).map((child) => (typeof child === "string" ? child : build(child))));
  if (focused) document.getElementById("text")?.focus();
  return true;
}

async function refresh() {
  timer = null;
  refreshed = Date.now();
  try {
    const response = await fetch(address("tree", {}));
    if (response.status === 401) logIn();
    if (!response.ok) return;
    const { version, state, terminal, facts, tree, commands: given } = await response.json();
    interval = Math.max(REFRESH, SHARE * (Date.now() - refreshed));
    const replaced = replace(tree, terminal && version === Number(live.dataset.version) && state === live.dataset.state);
    for (const [id, text] of Object.entries(facts)) {
      const node = document.getElementById(id);
      if (node.textContent !== text) node.textContent = text;
    }
    // Of an agent elsewhere, once an event has named them.
    if (facts["remote-task"]) document.getElementById("remote-ids").hidden = false;
    commands = given ?? commands;
    live.dataset.state = state;
    live.dataset.version = version;
    pending = pending.filter((row) => row.n > version);
    if (replaced) pending.forEach(append);
    await readFrames();
    // The forms for credentials come with the page.
    if (frames && state === "auth-required" && !document.getElementById("credentials")) location.reload();
    if (terminal) document.getElementById("cancel")?.setAttribute("hidden", "");
  } catch {
    // The link reports what is wrong; the next entry asks again.
  }
}

async function readStream(response, mine) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done || mine !== generation) return;
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const lines = buffer.slice(0, end).split("\n");
      buffer = buffer.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("");
      if (lines.includes("event: end")) ended = true;
      else if (data) take(JSON.parse(data));
    }
  }
}

// Without a place for a stream the log is read again and again.
async function poll(mine) {
  say("polling");
  for (let left = 15; left > 0 && !ended && mine === generation; left -= 1) {
    const response = await fetch(address("log", { after: seen }));
    if (!response.ok) return;
    const page = await response.json();
    page.rows.forEach(take);
    ended = page.ended;
    if (!page.rows.length) await pause(2000);
  }
}

async function follow() {
  const mine = ++generation;
  let wait = 500;
  while (!ended && mine === generation) {
    stream = new AbortController();
    try {
      const response = await fetch(address("events", { after: seen }), { signal: stream.signal });
      if (response.ok) {
        say("live");
        wait = 500;
        await readStream(response, mine);
      } else if (response.status === 503) {
        await poll(mine);
      } else if (response.status === 401) {
        logIn();
        return;
      } else {
        say(`status ${response.status}; load the page again`);
        return;
      }
    } catch {
      if (mine !== generation) return;
      say("connection lost, trying again");
    }
    if (!ended && mine === generation) await pause(wait);
    wait = Math.min(wait * 2, 10_000);
  }
  if (ended) {
    say("");
    schedule();
  }
}

let hiding = null;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => {
      generation += 1;
      stream?.abort();
      stream = null;
      say("paused");
    }, HIDDEN);
  } else if (link.textContent === "paused") {
    follow();
  }
});

const form = document.getElementById("composer");
if (form) {
  const task = form.dataset.task;
  // An ended task takes no message: the next one begins another task in the same context.
  const target = () => (form.dataset.task = ended || live.querySelector(".status .good, .status .bad") ? "" : task);
  const composer = new Composer(form, (answer) => {
    if (answer.id !== task) location.assign(`${form.dataset.api.replace(/api\/$/, "t/")}${encodeURIComponent(answer.id)}`);
    else schedule();
  });
  const send = composer.send.bind(composer);
  composer.send = (text) => {
    target();
    return send(text);
  };
  live.addEventListener("click", (event) => {
    const answer = event.target.closest?.("[data-answer]");
    if (answer) composer.send(answer.dataset.answer);
  });
}

const cancel = document.getElementById("cancel");
cancel?.addEventListener("click", async () => {
  cancel.disabled = true;
  try {
    await call(cancel.dataset.api);
  } catch (error) {
    say(clean(error.message));
  } finally {
    cancel.disabled = false;
  }
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

// A task of which nothing comes may hang: the server explains why.
setInterval(() => {
  const runs = ["submitted", "working"].includes(live.dataset.state);
  if (runs && !ended && !document.hidden && Date.now() - refreshed > QUIET) schedule();
}, QUIET);

follow();
