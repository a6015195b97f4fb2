// The list: filters, an order, and only those rows in the document that are in sight.

const ROW = 30;
const HEAD = 35; // the heads cover so much of the window
const list = { rows: [], cursor: 0, filters: {}, find: "", sort: null, down: false, extra: "" };
const windowBox = document.getElementById("window");
const spacer = document.getElementById("spacer");
const SCORES = {
  "1": (score) => score === 1, between: (score) => score !== null && score > 0 && score < 1,
  "0": (score) => score === 0, none: (score) => score === null,
};

function title(column) {
  const name = column.replace(/^(facet|label|part):/, "");
  return column !== name && (name in INDEX.columns || name in INDEX.texts) ? column.replace(":", " ") : name;
}

function columns() {
  const narrow = window.innerWidth < 760;
  const found = [["id", "episode", narrow ? "minmax(16ch, 3fr)" : "minmax(9ch, 3fr)"]];
  if (INDEX.columns.step && !narrow) found.push(["step", "step", "6ch"]);
  if (policies > 1) found.push(["policy", "policy", narrow ? "minmax(6ch, 1fr)" : "minmax(8ch, 1.5fr)"]);
  if (hasAttempts) found.push(["attempt", narrow ? "no." : "attempt", narrow ? "4ch" : "9ch"]);
  found.push(["score", "score", "7ch"]);
  if (!narrow) {
    found.push(["reward", "reward", "8ch"], ["outcome", "outcome", "minmax(8ch, 1fr)"], ["stop", "stopped by", "minmax(9ch, 1fr)"],
      ["turns", "turns", "6ch"], ["tokens", "tokens", "8ch"], ["seconds", "seconds", "9ch"]);
  }
  if (list.extra) found.push([list.extra, title(list.extra), narrow ? "7ch" : "minmax(9ch, 1.5fr)"]);
  return found;
}

const isNumber = (column) => !(column in INDEX.texts) && column !== "id";

function choice(name, label, options, onPick) {
  const select = el("select", { name, "aria-label": label, onchange: () => onPick(select.value) },
    options.map(([key, text]) => el("option", { value: key }, cut(text, 48))));
  return el("label", {}, label, select);
}

function buildFilters() {
  const form = document.getElementById("filters");
  const choices = document.getElementById("choices");
  document.getElementById("more").open = window.innerWidth >= 760;
  const find = document.getElementById("find");
  find.addEventListener("input", () => { list.find = find.value; changed(); });
  form.addEventListener("submit", (event) => { event.preventDefault(); windowBox.focus(); });
  for (const [column, { values, codes }] of Object.entries(INDEX.texts)) {
    if (values.length < 2 || values.length > 80) continue;
    const counts = new Array(values.length).fill(0);
    for (const code of codes) if (code >= 0) counts[code] += 1;
    const order = values.map((_, place) => place).sort((a, b) => counts[b] - counts[a] || (values[a] < values[b] ? -1 : 1));
    choices.append(choice(column, title(column), [["", "any"], ...order.map((p) => [values[p], `${values[p]} (${counts[p]})`])],
      (picked) => { list.filters[column] = picked; changed(); }));
  }
  choices.append(choice("score", "score", [["", "any"], ["1", "1"], ["between", "between 0 and 1"], ["0", "0"], ["none", "none"]],
    (picked) => { list.filters.score = picked; changed(); }));
  const more = [...Object.keys(INDEX.texts).filter((c) => c.includes(":")), ...Object.keys(INDEX.parts).map((p) => `part:${p}`)];
  choices.append(choice("extra", "extra column", [["", "none"], ...more.map((c) => [c, title(c)])],
    (picked) => { list.extra = picked; changed(); }));
  choices.append(el("button", { type: "button", onclick: clearFilters }, "Clear"));
}

function clearFilters() {
  Object.assign(list, { filters: {}, find: "", sort: null, down: false, extra: "" });
  showControls();
  changed();
}

function showControls() {
  document.getElementById("find").value = list.find;
  for (const select of document.querySelectorAll("#filters select")) {
    select.value = (select.name === "extra" ? list.extra : list.filters[select.name]) || "";
  }
}

function chosen() {
  const wanted = list.find.trim().toLowerCase();
  const tests = [];
  for (const [column, picked] of Object.entries(list.filters)) {
    if (!picked) continue;
    if (column === "score") tests.push((row) => SCORES[picked](value("score", row)));
    else {
      const code = INDEX.texts[column].values.indexOf(picked);
      tests.push((row) => INDEX.texts[column].codes[row] === code);
    }
  }
  if (wanted) tests.push((row) => INDEX.columns.id[row].toLowerCase().includes(wanted));
  const rows = [];
  for (let row = 0; row < COUNT; row += 1) if (tests.every((test) => test(row))) rows.push(row);
  if (list.sort) {
    const keys = new Map(rows.map((row) => [row, value(list.sort, row)]));
    const way = list.down ? -1 : 1;
    const compare = isNumber(list.sort) ? (a, b) => a - b : new Intl.Collator("en", { numeric: true }).compare;
    rows.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null) || a - b; // what has no value stands last
      return way * compare(x, y) || a - b;
    });
  }
  return rows;
}

function changed() {
  const active = Object.values(list.filters).filter(Boolean).length;
  document.getElementById("active").textContent = active ? `(${active} set)` : "";
  list.rows = chosen();
  list.cursor = 0;
  windowBox.scrollTop = 0;
  renderList();
  remember();
}

function renderList() {
  const mean = list.rows.map((row) => value("score", row)).filter((score) => score !== null);
  const said = mean.length ? `, mean score ${(mean.reduce((a, b) => a + b, 0) / mean.length).toFixed(3)}` : "";
  document.getElementById("matches").textContent = `${number(list.rows.length)} of ${number(COUNT)} episodes${said}`;
  const shape = columns();
  const heads = document.getElementById("heads");
  heads.style.gridTemplateColumns = shape.map(([, , width]) => width).join(" ");
  heads.replaceChildren(...shape.map(([column, text]) => el("div", {
    role: "columnheader", class: isNumber(column) ? "number" : null,
    "aria-sort": list.sort === column ? (list.down ? "descending" : "ascending") : "none",
  }, el("button", { type: "button", title: `Order by ${title(column)}`, onclick: () => order(column) },
    text, list.sort === column ? (list.down ? " ▼" : " ▲") : ""))));
  spacer.style.height = `${list.rows.length * ROW}px`;
  renderWindow();
}

function order(column) {
  if (list.sort !== column) Object.assign(list, { sort: column, down: isNumber(column) });
  else if (list.down === isNumber(column)) list.down = !list.down;
  else list.sort = null;
  changed();
}

function renderWindow(all = 0) {
  const shape = columns();
  const widths = shape.map(([, , width]) => width).join(" ");
  const first = all ? 0 : Math.max(0, Math.floor(windowBox.scrollTop / ROW) - 8);
  const last = all || Math.min(list.rows.length, Math.ceil((windowBox.scrollTop + windowBox.clientHeight) / ROW) + 8);
  const made = [];
  for (let place = first; place < Math.min(last, list.rows.length); place += 1) made.push(rowAt(place, shape, widths));
  spacer.replaceChildren(...made);
  document.getElementById("list").setAttribute("aria-rowcount", list.rows.length);
  windowBox.setAttribute("aria-activedescendant", `row${list.cursor}`);
}

function rowAt(place, shape, widths) {
  const row = list.rows[place];
  const made = el("a", {
    class: "row", role: "row", id: `row${place}`, href: `#episode/${row}`, tabindex: "-1",
    "aria-selected": String(place === list.cursor), "aria-rowindex": place + 1,
  }, shape.map(([column]) => cellOf(column, row)));
  made.style.gridTemplateColumns = widths;
  made.style.top = `${place * ROW}px`;
  return made;
}

function cellOf(column, row) {
  const found = value(column, row);
  if (!isNumber(column)) {
    const tone = column === "outcome" && found !== "ok" ? "bad" : null;
    return el("bdi", { role: "gridcell", title: visible(found ?? ""), class: tone }, cut(String(found ?? "–").replaceAll("\n", " "), 200));
  }
  const tone = column === "score" && found !== null ? (found === 1 ? " good" : found === 0 ? " bad" : "") : "";
  return el("span", { role: "gridcell", class: "number" + tone }, number(found));
}

function moveTo(place) {
  list.cursor = Math.min(Math.max(place, 0), list.rows.length - 1);
  const top = list.cursor * ROW;
  if (top < windowBox.scrollTop) windowBox.scrollTop = top;
  else if (top + ROW + HEAD > windowBox.scrollTop + windowBox.clientHeight) windowBox.scrollTop = top + ROW + HEAD - windowBox.clientHeight;
  renderWindow();
}

windowBox.addEventListener("scroll", () => requestAnimationFrame(() => renderWindow()), { passive: true });
windowBox.addEventListener("keydown", (event) => {
  const page = Math.floor((windowBox.clientHeight - HEAD) / ROW) - 1;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (event.key in steps) moveTo(list.cursor + steps[event.key]);
  else if (event.key === "Enter" && list.rows.length) location.hash = `#episode/${list.rows[list.cursor]}`;
  else return;
  event.preventDefault();
});
