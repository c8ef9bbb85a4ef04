// Elements from values. Text enters the page as text nodes only, so no text of a user can become markup.

const SVG = "http://www.w3.org/2000/svg";
const LINKS = new Set(["href", "src", "action", "formaction", "xlink:href"]);
const REFUSED = new Set(["srcdoc", "style"]);
/** Characters that change the direction of the text around them, with which a command can be shown as another one. */
const ORDER = /[\u202a-\u202e\u2066-\u2069]/g;

/** Return an HTML element. `attributes`: `class`, `on<event>` functions, `style` as an object, `dataset`, others as they are. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace what an element contains, and return it. */
export function replace(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Return the URL if a link may lead there: this site, or another one by http(s). Otherwise null. */
export function safeUrl(value) {
  try {
    const url = new URL(value, document.baseURI);
    return url.protocol === "https:" || url.protocol === "http:" ? String(value) : null;
  } catch {
    return null;
  }
}

/** Return a link, or the text alone where the address is not one of http(s). Links to other sites open a new tab. */
export function link(address, ...children) {
  const url = safeUrl(address);
  if (url === null) return h("span", null, ...children);
  const outside = new URL(url, document.baseURI).origin !== location.origin;
  return h("a", { href: url, ...(outside ? { target: "_blank", rel: "noopener noreferrer" } : {}) }, ...children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  element.append(...nodes(children));
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    if (typeof value !== "function") throw new TypeError(`${name} takes a function`);
    element.addEventListener(name.slice(2).toLowerCase(), value);
  } else if (name === "style" && typeof value === "object") {
    for (const [property, each] of Object.entries(value)) element.style.setProperty(property, String(each));
  } else if (name === "dataset") {
    Object.assign(element.dataset, value);
  } else if (REFUSED.has(name)) {
    throw new TypeError(`${name} is not set from text`);
  } else if (LINKS.has(name)) {
    const url = safeUrl(value);
    if (url !== null) element.setAttribute(name, url);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(printable(String(child)))));
}

function printable(text) {
  return text.replace(ORDER, (found) => `\\u${found.charCodeAt(0).toString(16)}`);
}
