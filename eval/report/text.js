"use strict";
// Recorded text may be hostile: it reaches the page as text nodes only, and what would act on the reader is spelled out.

const ACTING = /[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu;

function visible(text) {
  return String(text).replace(ACTING, (letter) => {
    const code = letter.codePointAt(0);
    if (code < 256) return "\\x" + code.toString(16).padStart(2, "0");
    return code < 65536 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
  });
}

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  return filled(made, attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return made;
}

function cut(text, most) {
  const letters = visible(text);
  return letters.length > most ? letters.slice(0, most - 1) + "…" : letters;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : size >= 0.001 ? String(+value.toPrecision(4)) : value.toExponential(2);
}

const SHOWN = 8000;

// A long text begins short: laying out a megabyte at once would stall the page.
function prose(text, most = SHOWN) {
  const pre = el("pre", { dir: "auto", tabindex: text.length > 600 ? "0" : null });
  if (text.length <= most) {
    pre.append(visible(text));
    return pre;
  }
  pre.append(visible(text.slice(0, most)));
  const more = el("button", { type: "button", onclick: () => { pre.textContent = visible(text); more.remove(); } },
    `Show all ${number(text.length)} characters`);
  return el("div", {}, pre, more);
}
