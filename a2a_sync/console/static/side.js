// Several conversations beside each other, each the page of an agent or a task in a frame. The address of this page names what
// the frames show, so that a reload shows the same. On a narrow screen one is shown at a time, chosen by buttons.

import { element } from "./tree.js";

const panes = document.getElementById("panes");
const tabs = document.getElementById("tabs");
const { most, base, here } = panes.dataset;

const all = () => [...panes.children];
const frameOf = (pane) => pane.querySelector("iframe");

// Where a frame is, as far as this page may ask.
function placeOf(pane) {
  const frame = frameOf(pane);
  try {
    const { pathname, search } = frame.contentWindow.location;
    if (pathname.startsWith(base)) return pathname.slice(base.length) + search;
  } catch {
    // It shows something else.
  }
  return frame.getAttribute("src").slice(base.length);
}

function show(pane) {
  for (const one of all()) one.classList.toggle("shown", one === pane);
  describe();
}

function describe() {
  const shown = all();
  if (shown.length && !shown.some((pane) => pane.classList.contains("shown"))) shown[0].classList.add("shown");
  const names = [];
  shown.forEach((pane, place) => {
    const page = frameOf(pane).contentDocument;
    // What distinguishes agents of one name.
    const agent = page?.querySelector("nav a[aria-current] small")?.textContent;
    let name = page?.querySelector("h1")?.textContent || `Conversation ${place + 1}`;
    if (agent) name += ` · ${agent}`;
    if (names.includes(name)) name += ` (${place + 1})`;
    const title = pane.querySelector(".pane-title");
    title.textContent = name;
    title.href = base + placeOf(pane);
    pane.setAttribute("aria-label", name);
    frameOf(pane).title = name;
    pane.querySelector(".pane-close").setAttribute("aria-label", `Close ${name}`);
    names.push(name);
  });
  tabs.replaceChildren(
    ...shown.map((pane, place) => {
      const tab = element("button", "", names[place]);
      tab.type = "button";
      tab.setAttribute("aria-pressed", pane.classList.contains("shown"));
      tab.addEventListener("click", () => show(pane));
      return tab;
    }),
  );
  document.getElementById("add").hidden = shown.length >= Number(most);
  const query = shown.map((pane) => new URLSearchParams({ t: placeOf(pane) })).join("&");
  history.replaceState(null, "", `${here}${query && "?"}${query}`);
}

function watch(pane) {
  frameOf(pane).addEventListener("load", describe);
  pane.querySelector(".pane-close").addEventListener("click", (event) => {
    event.preventDefault();
    pane.remove();
    describe();
    tabs.querySelector("button")?.focus();
  });
}

for (const button of document.querySelectorAll("[data-add]")) {
  button.addEventListener("click", (event) => {
    event.preventDefault();
    const title = element("a", "pane-title", "Conversation");
    const close = element("a", "pane-close", "Close");
    close.href = here;
    const bar = element("p", "pane-bar");
    bar.append(title, " ", close);
    const frame = element("iframe");
    frame.src = button.dataset.add;
    const pane = element("section", "pane");
    pane.append(bar, frame);
    watch(pane);
    panes.append(pane);
    show(pane);
  });
}

all().forEach(watch);
describe();
