// Builds elements from the nested lists of the server. No string is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect", "path"]);
const TAGS = new Set([
  "div", "p", "span", "section", "h1", "h2", "h3", "h4", "h5", "h6", "b", "br", "hr", "em", "strong", "s", "code", "pre",
  "blockquote", "a", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "img", "audio",
  "video", "iframe", "button", ...SVG_TAGS,
]);
const ATTRIBUTES = new Set([
  "class", "href", "src", "alt", "rel", "target", "title", "loading", "type", "role", "tabindex", "scope", "start", "controls", "open", "x", "y",
  "width", "height", "viewbox", "preserveaspectratio", "data-artifact", "data-blank", "data-answer", "aria-label", "aria-live", "aria-busy",
  "aria-hidden",
]);
const SVG_NAMES = { viewbox: "viewBox", preserveaspectratio: "preserveAspectRatio" };

function allowed(tag, name, value) {
  if (!ATTRIBUTES.has(name)) return false;
  if (name === "href") return /^(https?:|mailto:|\/(?!\/))/i.test(value);
  if (name === "src") return /^\/(?!\/)/.test(value);
  return true;
}

export function build([tag, attributes, ...children]) {
  if (!TAGS.has(tag)) return document.createTextNode("");
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (allowed(tag, name, value)) element.setAttribute(SVG_NAMES[name] ?? name, value);
  }
  for (const child of children) element.append(typeof child === "string" ? child : build(child));
  return element;
}

// As the server does with texts that it renders: control characters, and characters that change the direction of text.
const UNFIT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const clean = (text) => text.replace(UNFIT, "\ufffd");

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
